//! `onesweep watch` on a terminal: what is to be seen there, and how it leaves the terminal behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::{
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, program, root_test, run, text},
    serving::Serving,
};

const COLUMNS: usize = 110;
const LINES: usize = 20;
/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program on a terminal of its own, in a shell that notes how the terminal was before and after, and the exit code.
struct Screen {
    running: Child,
    written: Arc<Mutex<Vec<u8>>>,
    notes: PathBuf,
}

impl Screen {
    /// `words` go before the program.
    fn start(notes: &Path, words: &str, options: &str, path: &Path) -> Self {
        fs::create_dir_all(notes).expect("a directory");
        fs::set_permissions(notes, fs::Permissions::from_mode(0o777)).expect("a mode");
        let line = format!(
            "stty rows {LINES} cols {COLUMNS}; stty -g > before; \
             {words} sh -c 'echo $$ > pid; exec \"$@\"' sh '{}' watch {options} '{}' 2> said; echo $? > code; stty -g > after",
            program().display(),
            path.display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--command", &line, "/dev/null"]).current_dir(notes);
        script.env("TERM", "xterm").env("SHELL", "/bin/sh").env_remove("ONESWEEP_HIDE");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = script.spawn().expect("script runs; try `make deps`");
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut out, kept) = (running.stdout.take().expect("a pipe"), Arc::clone(&written));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut bytes) {
                kept.lock().expect("no panic").extend(&bytes[..read]);
            }
        });
        Self { running, written, notes: notes.to_owned() }
    }

    fn lines(&self) -> Vec<String> {
        emulated(&text(&self.written.lock().expect("no panic")))
    }

    /// Waits until the screen shows what it should.
    fn until(&mut self, what: &str, shows: impl Fn(&[String]) -> bool) -> Vec<String> {
        let began = Instant::now();
        loop {
            let lines = self.lines();
            if shows(&lines) {
                return lines;
            }
            let said = fs::read_to_string(self.notes.join("said")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "not seen: {what}\n{}\n{said}", lines.join("\n"));
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn keys(&mut self, keys: &str) {
        let input = self.running.stdin.as_mut().expect("a pipe");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("it is typed");
    }

    fn pid(&self) -> String {
        fs::read_to_string(self.notes.join("pid")).expect("its number").trim().to_owned()
    }

    /// After its end: the terminal is as it was. Gives the exit code.
    fn left_in_order(mut self) -> i32 {
        assert!(self.running.wait().expect("it ends").success());
        let note = |name: &str| fs::read_to_string(self.notes.join(name)).expect("a note").trim().to_owned();
        assert_eq!(note("before"), note("after"), "the terminal's settings");
        let written = text(&self.written.lock().expect("no panic"));
        assert!(written.matches("\x1b[?1049h").count() == 1 && written.matches("\x1b[?1049l").count() == 1);
        assert!(written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is back");
        note("code").parse().expect("a number")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// What such a terminal shows: text, places of the cursor, and clearing; colours are left out.
fn emulated(written: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; COLUMNS]; LINES];
    let (mut line, mut column) = (0, 0);
    let mut chars = written.chars();
    while let Some(char) = chars.next() {
        match char {
            '\x1b' if chars.clone().next() == Some('[') => {
                chars.next();
                let mut parameters = String::new();
                let last = loop {
                    match chars.next() {
                        Some(end @ '@'..='~') => break end,
                        Some(parameter) => parameters.push(parameter),
                        None => break ' ',
                    }
                };
                let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1));
                match last {
                    'H' => {
                        line = numbers.next().unwrap_or(1) - 1;
                        column = numbers.next().unwrap_or(1) - 1;
                    }
                    'J' => cells.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => line += 1,
            char => {
                if let Some(cell) = cells.get_mut(line).and_then(|line| line.get_mut(column)) {
                    *cell = char;
                }
                column += 1;
            }
        }
    }
    cells.into_iter().map(|line| String::from_iter(line).trim_end().to_owned()).collect()
}

fn row<'a>(lines: &'a [String], name: &str) -> Option<&'a str> {
    lines[3..].iter().map(String::as_str).find(|line| line.ends_with(&format!(" {name}")))
}

fn write(path: &Path, kib: usize) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, vec![1; kib << 10]).expect("a file");
}

/// What GNU du, run by nobody, says, in bytes that are allocated.
fn du_of_nobody(path: &Path) -> u64 {
    let mut du = Command::new("setpriv");
    du.args(["--reuid=65534", "--regid=65534", "--clear-groups", "du", "-sB1"]).arg(path);
    let said = text(&du.output().expect("du runs").stdout);
    said.split('\t').next().and_then(|figure| figure.parse().ok()).expect("a figure")
}

#[test]
fn a_view_follows_what_is_written_and_gives_the_terminal_back() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    write(&root.join("mail/inbox/f"), 3072);
    write(&root.join("mail/letter"), 512);
    write(&root.join("other/f"), 1024);
    crate::tree::sync(&root);
    let serving = Serving::start(&image);
    let options = format!("--socket '{}'", serving.socket.display());
    let mut screen = Screen::start(&image.beside("notes"), "", &options, &root);
    let lines =
        screen.until("the largest first", |lines| row(lines, "mail/").is_some_and(|line| line.contains("3.5 MiB")));
    assert!(lines[0].starts_with(&root.display().to_string()) && lines[1].starts_with("live"), "{lines:?}");
    assert!(lines[3].ends_with(" mail/") && lines[4].ends_with(" other/") && lines[4].contains("1.0 MiB"), "{lines:?}");
    screen.keys("\r");
    screen.until("the directory and its own file", |lines| {
        lines[0].contains("/mail ") && row(lines, "letter").is_some_and(|line| line.contains("512 KiB"))
    });
    write(&root.join("mail/letter"), 8192);
    crate::tree::sync(&root);
    screen.until("its growth", |lines| {
        lines[3].ends_with(" letter") && lines[3].contains(" 8.0 MiB") && lines[3].contains("+7.5 MiB")
    });
    screen.keys("n");
    screen.until("the order of names", |lines| lines[3].ends_with(" inbox/"));
    // Back, where the directory that was entered has grown as well.
    screen.keys("\x7f");
    screen.until("the growth above", |lines| row(lines, "mail/").is_some_and(|line| line.contains("+7.5 MiB")));
    screen.keys("q");
    assert_eq!(screen.left_in_order(), 0);
    // By a signal.
    let mut screen = Screen::start(&image.beside("signalled"), "", &options, &root);
    screen.until("the view", |lines| row(lines, "mail/").is_some());
    run(Command::new("kill").args(["-TERM", &screen.pid()]));
    assert_eq!(screen.left_in_order(), 128 + 15);
    // What the server is asked for when it is gone is told, and what is known stays.
    let mut screen = Screen::start(&image.beside("alone"), "", &options, &root);
    screen.until("the view", |lines| row(lines, "mail/").is_some());
    serving.end();
    let lines = screen.until("that nobody answers", |lines| lines[1].starts_with("no answer: "));
    assert!(row(&lines, "mail/").is_some(), "{lines:?}");
    screen.keys("\x03");
    assert_eq!(screen.left_in_order(), 0);
}

#[test]
fn a_user_sees_no_more_than_du_would_show() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root();
    write(&root.join("open/f"), 2048);
    write(&root.join("mixed/hidden/secret"), 4096);
    write(&root.join("mixed/f"), 512);
    write(&root.join("private/inside/secret"), 3072);
    for hidden in ["private", "mixed/hidden"] {
        fs::set_permissions(root.join(hidden), fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    crate::tree::sync(&root);
    let serving = Serving::start(&image);
    let (whole, mixed) = (du_of_nobody(&root), du_of_nobody(&root.join("mixed")));
    let told = |bytes: u64| match bytes as f64 / 1024.0 {
        kib if kib < 1024.0 => format!(" {kib:.0} KiB"),
        kib => format!(" {:.1} MiB", kib / 1024.0),
    };
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let options = format!("--socket '{}'", serving.socket.display());
    let mut screen = Screen::start(&image.beside("notes"), nobody, &options, &root);
    let lines = screen.until("the view", |lines| row(lines, "open/").is_some());
    assert!(lines[0].contains(&format!(" {} on disk", told(whole))), "{whole}: {lines:?}");
    assert!(lines[1].ends_with("partial: some of it is not yours to see"), "{lines:?}");
    let shut = row(&lines, "private/  (no access)").unwrap_or_else(|| panic!("{lines:?}"));
    assert!(shut.contains(" 4.0 KiB ") && shut.contains(" 1 "), "{shut}");
    let part = row(&lines, "mixed/  (partial)").unwrap_or_else(|| panic!("{lines:?}"));
    assert!(part.contains(&told(mixed)), "{mixed}: {part}");
    // What can't be listed isn't entered.
    screen.keys("n");
    screen.until("the order of names", |lines| lines[3].ends_with("lost+found/  (no access)"));
    screen.keys("\x1b[H\r\r");
    screen.keys("q");
    let lines = screen.lines();
    assert!(!lines[0].contains("lost+found"), "{lines:?}");
    assert_eq!(screen.left_in_order(), 0);
    serving.end();
}

#[test]
fn without_a_server_the_tree_is_walked_once() {
    let folder = Folder::new();
    let top = folder.join("top");
    write(&top.join("directory/f"), 640);
    write(&top.join("file"), 320);
    let mut screen = Screen::start(&folder.join("notes"), "", "--apparent-size --socket nowhere", &top);
    let lines = screen.until("the view", |lines| row(lines, "directory/").is_some_and(|line| line.contains("644 KiB")));
    assert!(lines[1].starts_with("no server: directories as walked ") && row(&lines, "file").is_some(), "{lines:?}");
    screen.keys("\r");
    screen.until("the directory", |lines| row(lines, "f").is_some_and(|line| line.contains("640 KiB")));
    screen.keys("q");
    let said = screen.notes.join("said");
    assert_eq!(screen.left_in_order(), 0);
    let said = fs::read_to_string(said).expect("what it said");
    assert!(said.contains("no server at nowhere: ") && said.contains("start one by `onesweep serve "), "{said}");
}

#[test]
fn without_a_terminal_it_says_so() {
    let out = finish(&mut onesweep(["watch", "/"]), 2);
    assert!(text(&out.stderr).contains("standard output is no terminal") && out.stdout.is_empty());
    let seen = text(&output(Command::new("script").args([
        "--quiet",
        "--command",
        &format!("'{}' watch /nowhere; echo code $?", program().display()),
        "/dev/null",
    ])));
    assert!(seen.contains("/nowhere: cannot watch it: No such file or directory") && seen.contains("code 2"), "{seen}");
}

/// Before a first harvest is over, which may take hours.
#[test]
fn it_says_at_once_that_the_server_is_still_counting() {
    let (folder, notes) = (Folder::new(), Folder::new());
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.expect("a connection");
            thread::spawn(move || {
                for question in BufReader::new(&connection).lines().map_while(Result::ok) {
                    // Who waits for it hears nothing.
                    if question.contains("\"max_ms\":0") {
                        (&connection).write_all(b"{\"refused\": \"late\"}\n").expect("it is said");
                    }
                }
            });
        }
    });
    let options = format!("--socket '{}'", socket.display());
    let mut screen = Screen::start(&notes.join(""), "", &options, &folder.join(""));
    screen
        .until("what the server does", |lines| lines.iter().any(|line| line.contains("the server is still counting")));
    screen.keys("q");
    assert_eq!(screen.left_in_order(), 0);
}

/// As when a window is closed.
#[test]
fn it_ends_with_its_terminal() {
    let folder = Folder::new();
    write(&folder.join("top/file"), 320);
    let mut screen = Screen::start(&folder.join("notes"), "", "--socket nowhere", &folder.join("top"));
    screen.until("the view", |lines| row(lines, "file").is_some());
    let process = Process(PathBuf::from(format!("/proc/{}", screen.pid())));
    drop(screen);
    process.ends();
}

/// What isn't to outlive its test, also when that fails.
struct Process(PathBuf);

impl Process {
    fn ends(&self) {
        let began = Instant::now();
        while self.0.exists() {
            assert!(began.elapsed() < PATIENCE, "it goes on");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = self.0.file_name().filter(|_| self.0.exists()) {
            let _ = Command::new("kill").arg("-9").arg(pid).status();
        }
    }
}

/// As when a connection is cut, or somebody types `[` behind Alt: the rest of the key never comes.
#[test]
fn it_ends_where_a_key_came_in_part() {
    for is_gone in [false, true] {
        let folder = Folder::new();
        write(&folder.join("top/file"), 320);
        let mut screen = Screen::start(&folder.join("notes"), "", "--socket nowhere", &folder.join("top"));
        screen.until("the view", |lines| row(lines, "file").is_some());
        let process = Process(PathBuf::from(format!("/proc/{}", screen.pid())));
        screen.keys("\x1b[");
        // Who waits for the rest of it sleeps in the terminal, as far as the kernel tells where.
        let began = Instant::now();
        let sleeps_in =
            |function: &str| fs::read_to_string(process.0.join("wchan")).is_ok_and(|it| it.contains(function));
        while !(sleeps_in("tty") || sleeps_in("wait_woken")) && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
        }
        if is_gone {
            drop(screen);
        } else {
            run(Command::new("kill").args(["-TERM", &screen.pid()]));
        }
        process.ends();
    }
}
