//! The commands of the guide's pages (`book/`), run as they stand there, each page in one shell and on file systems of its own.
//!
//! Blocks of `sh` are run one after the other. One with the paragraph `*Not run by the tests: REASON*` before it is shown and
//! not run. What readers don't need is in comments of the page: `<!-- then: COMMAND -->` has to succeed after the block above it.
//!
//! The shell sees the machine's programs and nothing else of it: folders such as `/srv` and `/etc/onesweep` are its own, mounts
//! and processes end with it, and so does its network.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    image::{Folder, Fs, Image},
    run::{output, program, root_test, run, short, text},
    tree::Rng,
};

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book")
}

/// What a page has to say to a shell.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    script: String,
    run: usize,
    /// Why blocks are not run.
    left_out: Vec<String>,
}

const LEFT_OUT: &str = "*Not run by the tests: ";

fn read(page: &str) -> Page {
    let (mut script, mut run, mut left_out) = (String::new(), 0, Vec::new());
    let mut block: Option<(String, bool)> = None;
    let mut reason: Option<String> = None;
    for (number, line) in page.lines().enumerate() {
        match &mut block {
            Some((commands, is_run)) if line == "```" => {
                if *is_run {
                    run += 1;
                    script += commands;
                }
                block = None;
            }
            Some((commands, _)) => *commands += &format!("{line}\n"),
            None => {
                if let Some(language) = line.strip_prefix("```") {
                    let commands = format!("echo '+ line {}' >&2\n", number + 2);
                    let reason = reason.take();
                    block = Some((commands, language == "sh" && reason.is_none()));
                    assert!(
                        matches!(language, "sh" | "text") || (language == "python" && reason.is_some()),
                        "line {}: {language:?}",
                        number + 1
                    );
                    left_out.extend(reason);
                } else if let Some(command) = line.strip_prefix("<!-- then: ") {
                    let command = command.strip_suffix(" -->").expect("a comment on one line");
                    script += &format!("echo '+ check of line {}' >&2\n{command}\n", number + 1);
                } else if let Some(why) = line.strip_prefix(LEFT_OUT) {
                    assert!(line.ends_with('*'), "line {}: a reason is one line", number + 1);
                    reason = Some(why.trim_end_matches('*').to_owned());
                } else if !line.is_empty() {
                    assert_eq!(reason, None, "line {}: a reason stands right before its block", number + 1);
                }
            }
        }
    }
    assert!(block.is_none() && reason.is_none(), "something is open at the end");
    Page { script, run, left_out }
}

/// The shell's own machine: the root to be, the file system of /srv, the program, the page's commands, and the unmounted disk.
const MACHINE: &str = r#"
set -euo pipefail
root=$1
mount -t tmpfs -o size=2G,mode=755 guide "$root"
for dir in /bin /sbin /lib* /usr /opt; do
    if [ -L "$dir" ]; then cp -P "$dir" "$root$dir"; continue; fi
    mkdir "$root$dir"; mount --rbind "$dir" "$root$dir"; mount -o remount,bind,ro "$root$dir"
done
mkdir -p "$root"/{dev,proc,sys,old,etc/onesweep,home,mnt,srv,backup,program,root,run/clamav,tmp,var/{lib,log,tmp,run}}
chmod 1777 "$root/tmp" "$root/var/tmp"
mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"; mount -t proc proc "$root/proc"
for file in passwd group nsswitch.conf ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime; do
    if [ -e /etc/$file ]; then cp -a /etc/$file "$root/etc/"; fi
done
printf '127.0.0.1 localhost box notebook\n' > "$root/etc/hosts"
ln -s /proc/self/mounts "$root/etc/mtab"
mount --bind "$2" "$root/srv"
touch "$root/program/onesweep"; mount --bind "$3" "$root/program/onesweep"
cp "$4" "$root/page"
cd "$root"
pivot_root . old
umount --lazy /old
ip link set lo up
exec env -i PATH=/program:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DISK="$5" bash /page
"#;

/// Before a page's own commands: whatever it has started ends before the shell does.
const PRELUDE: &str = r#"
set -euo pipefail
trap 'code=$?; for job in $(jobs -p); do kill $job 2>/dev/null || true; done; wait; exit $code' EXIT
cd /root
"#;

/// The engine of the page on scanning: clamd with one signature, of the test file of all scanners.
const CLAMD: &str = r#"
mkdir /var/lib/signatures
printf 'Test.Eicar:0:*:%s\n' "$(printf '%s%s' 'X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-' 'STANDARD-ANTIVIRUS-TEST-FILE!$H+H*' | od -An -tx1 -v | tr -d ' \n')" > /var/lib/signatures/own.ndb
printf 'Foreground yes\nLocalSocket /run/clamav/clamd.ctl\nDatabaseDirectory /var/lib/signatures\nUser root\n' > /etc/clamd.conf
clamd -c /etc/clamd.conf > /var/log/clamd 2>&1 &
until test -S /run/clamav/clamd.ctl; do sleep 0.1; done
"#;

/// Files that came one piece at a time, by turns, so that they lie in pieces all over the disk.
fn scattered(files: &[PathBuf], rng: &mut Rng) {
    for round in 0..3 {
        for file in files {
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            let mut file = fs::File::options().append(true).create(true).open(file).expect("a file");
            if round == 0 {
                file.write_all(b"From: somebody\n\n").expect("a mail");
            }
            let size = 2000 + rng.below(6000) as usize;
            file.write_all(&rng.bytes(size)).expect("a part of a mail");
        }
        let root = fs::File::open(files[0].parent().expect("a folder")).expect("a folder");
        rustix::fs::syncfs(root).expect("what is written gets its place");
    }
}

/// What the pages speak of, below /srv.
fn fill(srv: &Path) {
    let mut rng = Rng::new(1);
    let mails = |user: u64| (0..60).map(move |n| format!("mail/user{user}/cur/{n:04}.eml"));
    let mails: Vec<PathBuf> = (0..4).flat_map(mails).map(|name| srv.join(name)).collect();
    scattered(&mails, &mut rng);
    let mut write = |name: String, bytes: usize| {
        let path = srv.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, rng.bytes(bytes)).expect("a file");
    };
    for n in 0..40 {
        write(format!("home/ann/notes/{n}.txt"), 500 + 100 * n);
        write(format!("archive/box-{}/paper-{n}.txt", n % 4), 3000 * n + 1);
        write(format!("share/{n}.doc"), 20_000 + n);
        write(format!("images/{}/{n:03}.jpg", if n % 2 == 0 { "cat" } else { "dog" }), 30_000 + 100 * n);
        write(format!("images/{}/{n:03}.json", if n % 2 == 0 { "cat" } else { "dog" }), 80);
    }
    write("www/index.html".into(), 2000);
    write("home/video".into(), 3 << 20);
    std::os::unix::fs::symlink("index.html", srv.join("www/home.html")).expect("a link");
}

/// Runs a page. In memory everything counts as a disk that seeks, whatever the machine has.
fn follow(name: &str, prelude: &str) {
    let page = read(&fs::read_to_string(book().join(name)).expect("the page"));
    assert!(page.run > 0, "{name} runs nothing");
    let srv = Image::in_memory(Fs::Ext4, 512 << 20);
    fill(&srv.root());
    // The partition of the pages that speak of one. Nothing has it mounted.
    let mut disk = Image::in_memory(Fs::Ext4, 64 << 20);
    scattered(&(0..20).map(|n| disk.root().join(format!("mail/{n}.eml"))).collect::<Vec<_>>(), &mut Rng::new(2));
    disk.unmount();

    let folder = Folder::new();
    let (root, script) = (folder.join("root"), folder.join("page"));
    fs::create_dir(&root).expect("a root");
    fs::write(&script, [PRELUDE, prelude, &page.script].concat()).expect("the commands");
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--net"]);
    shell.args(["bash", "-c", MACHINE]);
    shell.arg("guide").args([&root, &srv.root(), &program(), &script]).arg(disk.device()).stdin(Stdio::null());
    // Where it wrote what is known when it has ended, and nothing that it leaves running holds a pipe of ours.
    let said = folder.join("said");
    let out = fs::File::create(&said).expect("a file");
    let status = shell.stdout(out.try_clone().expect("the same file")).stderr(out).status().expect("unshare runs");
    let said = fs::read(&said).expect("what it said");
    let tail: Vec<u8> = said.iter().rev().take(4000).rev().copied().collect();
    assert!(status.success(), "book/{name}: {status}\n{}", text(&tail));
    assert!(said.windows(7).any(|word| word == b"+ line "), "{}", short(&said));
    // The mails of the disk are what they were, whoever had it.
    run(Command::new("e2fsck").args(["-fn"]).arg(disk.device()).stdout(Stdio::null()));
}

/// A test for each page, and a list of them.
macro_rules! pages {
    ($($test:ident: $name:literal, $prelude:expr;)*) => {
        const PAGES: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                // Its namespace keeps mounted what others unmount meanwhile.
                root_test!(alone);
                follow($name, $prelude);
            }
        )*
    };
}

pages! {
    first_steps: "first-steps.md", "";
    a_file_server_is_backed_up: "file-server.md", "";
    a_nas_is_scanned: "nas.md", CLAMD;
    an_archive_is_hashed: "hash-archive.md", "";
    training_shards_are_built: "training-shards.md", "";
    what_fills_a_disk_is_found: "full-disk.md", "";
    a_mail_server_is_defragmented: "mail-server.md", "";
    a_notebook_is_sped_up: "notebook.md", "";
}

/// Pages without a command: they tell how and why.
const PROSE: [&str; 3] = ["SUMMARY.md", "how-it-works.md", "limits.md"];

#[test]
fn every_page_is_run_and_stands_in_the_summary() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).expect("the summary");
    for entry in fs::read_dir(book()).expect("the book").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        if !name.ends_with(".md") {
            continue;
        }
        assert!(PAGES.contains(&&*name) || PROSE.contains(&&*name), "no test runs book/{name}");
        assert!(name == "SUMMARY.md" || summary.contains(&format!("(book/{name})")), "SUMMARY.md lacks {name}");
    }
    // Most of what is shown is run.
    for name in PAGES {
        let page = read(&fs::read_to_string(book().join(name)).expect("the page"));
        assert!(page.run > page.left_out.len(), "{name}: {} of {} blocks", page.run, page.run + page.left_out.len());
    }
}

#[test]
fn every_page_of_docs_stands_in_the_summary() {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).expect("the summary");
    for entry in fs::read_dir(book().join("../docs")).expect("the pages").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        assert!(!name.ends_with(".md") || summary.contains(&format!("(docs/{name})")), "SUMMARY.md lacks docs/{name}");
    }
}

/// The name by which a page's heading can be linked, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let mut name = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    name.retain(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    name
}

/// What can be linked in a page: headings, and names that are given.
fn anchors(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut all: Vec<String> = Vec::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with('#') {
            all.push(anchor(line));
        }
        all.extend(line.split("id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    all
}

/// Targets of the links in a page, but for those elsewhere.
fn links(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut all = Vec::new();
    for line in page.lines() {
        fenced ^= line.starts_with("```");
        let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
        all.extend(targets.filter(|target| !fenced && !target.contains("://")));
    }
    all
}

/// Links of the pages in the repository. Those of the built book are looked at by `make book`.
#[test]
fn no_link_is_dead() {
    let top = book().join("..");
    let mut pages: BTreeMap<PathBuf, String> = BTreeMap::new();
    for dir in [".", "book", "docs"] {
        for entry in fs::read_dir(top.join(dir)).expect("a folder").flatten() {
            let path = entry.path();
            // The summary's links begin where the book is built.
            if path.extension().is_some_and(|extension| extension == "md") && !path.ends_with("SUMMARY.md") {
                let text = fs::read_to_string(&path).expect("a page");
                pages.insert(path.canonicalize().expect("a page"), text);
            }
        }
    }
    let (mut dead, mut count) = (Vec::new(), 0);
    for (path, page) in &pages {
        for link in links(page) {
            count += 1;
            let (file, place) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { Ok(path.clone()) } else { path.with_file_name(file).canonicalize() };
            let leads = target.is_ok_and(|target| match pages.get(&target) {
                Some(page) if !place.is_empty() => anchors(page).iter().any(|anchor| anchor == place),
                _ => true,
            });
            if !leads {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn the_readme_has_the_figures_of_the_benchmarks() {
    run(Command::new("python3").arg(book().join("../bench/readme-table")).arg("--check"));
}

/// Whom a row without a figure is about has to see that there is none.
#[test]
fn rows_of_the_readme_that_were_not_measured_say_so() {
    let script = r##"
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("readme_table", sys.argv[1])
made = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(made)
column = ("A", "A", 0)
made.FIGURES = [(made.KIND, "cold", None, None), ("by whom", None, None, None)]
made.FIGURES += [(row, "Section", row, column) for row in ("measured", "unmeasured", "absent")]
made.FIGURES += [("elsewhere", "Section", "measured", ("B", "B", 0))]
print(made.table("# Section\n\n| of | A |\n|---|--:|\n| measured | 2.5 (1 to 3) |\n| unmeasured | not measured |\n"))
"##;
    let table = book().join("../bench/readme-table");
    // Nothing is to be left beside it, as Python does.
    let told = text(&output(Command::new("python3").args(["-B", "-c", script]).arg(table)));
    for row in [
        "*by whom* |",
        "measured | 2.5 (1 to 3)",
        "unmeasured | not measured",
        "absent | not measured",
        "elsewhere | not measured",
    ] {
        assert!(told.lines().any(|line| line.starts_with(&format!("| {row} |"))), "{row}: {told}");
    }
}

#[test]
fn blocks_are_taken_as_they_stand() {
    let page = read(
        "# A\n\n```sh\na\nb\n```\n\n<!-- then: c -->\n\n\
         *Not run by the tests: no d.*\n\n```sh\nd\n```\n\n```text\ne\n```\n",
    );
    let expected = Page {
        script: "echo '+ line 4' >&2\na\nb\necho '+ check of line 8' >&2\nc\n".into(),
        run: 1,
        left_out: vec!["no d.".into()],
    };
    assert_eq!(page, expected);
    assert_eq!(links("[a](b.md#c) `x` [d](https://e.example/f)\n```sh\n[g](h)\n```\n"), ["b.md#c"]);
    assert_eq!(anchor("## Moving files: a `b`, c"), "moving-files-a-b-c");
}
