//! Programs that this process has started.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

fn pid(process: u32) -> io::Result<Pid> {
    let raw = i32::try_from(process).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// Ends every process of the group that `leader` leads, at once.
#[doc(alias = "kill")]
pub fn kill_group(leader: u32) -> io::Result<()> {
    Ok(rustix::process::kill_process_group(pid(leader)?, Signal::KILL)?)
}

/// Asks a process to end.
#[doc(alias = "kill")]
pub fn terminate(process: u32) -> io::Result<()> {
    Ok(rustix::process::kill_process(pid(process)?, Signal::TERM)?)
}

/// Sends a signal, by its number, to a process: what came to this one alone was meant for that.
#[doc(alias = "kill")]
pub fn pass_on(signal: i32, process: u32) -> io::Result<()> {
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::kill_process(pid(process)?, signal)?)
}

/// Gives this process, where nobody has made other threads yet, the name that `ps` shows; 15 bytes at most.
#[doc(alias = "PR_SET_NAME")]
pub fn set_name(name: &std::ffi::CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

/// Tells the kernel that this thread, and those that it makes later, write what others wait for: what they allocate never
/// waits for file systems or disks, which may wait for them. Needs `CAP_SYS_RESOURCE`.
#[doc(alias = "PR_SET_IO_FLUSHER")]
pub fn set_io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

/// Waits until a child has ended, and leaves its status to be taken: until then nobody else gets its number.
#[doc(alias = "waitid")]
pub fn wait_for_end(child: u32) -> io::Result<()> {
    let child = WaitId::Pid(pid(child)?);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| rustix::process::waitid(child.clone(), options))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn signals_come_to_a_process_as_they_are() {
        // They may be ignored where the tests run (nohup), and are until env(1) has come to it.
        let words = ["--default-signal=HUP,TERM", "sh", "-c", "echo started; exec sleep 1000"];
        for signal in [1, 15] {
            let mut child = Command::new("env").args(words).stdout(Stdio::piped()).spawn().unwrap();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
            pass_on(signal, child.id()).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(signal));
        }
        assert_eq!(pass_on(-1, std::process::id()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_group_ends_with_the_children_of_its_leader() {
        let script = ["-c", "sleep 1000 & echo started; wait"];
        let mut leader = Command::new("sh").args(script).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(leader.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        kill_group(leader.id()).unwrap();
        // The pipe ends when nobody holds it any more: the leader's child neither.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
        wait_for_end(leader.id()).unwrap();
        wait_for_end(leader.id()).unwrap();
        assert_eq!(leader.wait().unwrap().signal(), Some(9));
        assert!(wait_for_end(leader.id()).is_err());
        assert_eq!(kill_group(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
