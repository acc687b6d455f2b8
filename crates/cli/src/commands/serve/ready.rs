//! Tells systemd how it goes (sd_notify(3)), where that wants to know.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{ffi::OsStrExt, net::SocketAddr, net::UnixDatagram},
    },
};

/// It answers.
pub(in crate::commands) fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// It reads its settings again; [`ready`] ends that.
pub(super) fn reloading() {
    notify("RELOADING=1");
}

/// It ends.
pub(in crate::commands) fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    if let Some(address) = env::var_os("NOTIFY_SOCKET") {
        // Who doesn't take it doesn't want it.
        let _ = send(&address, state);
    }
}

fn send(address: &OsStr, state: &str) -> io::Result<usize> {
    let bytes = address.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("onesweep-test-{}", std::process::id());
        let listening = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (
                format!("@{name}").into(),
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            ),
        ];
        for (address, socket) in listening {
            send(&address, "READY=1\nSTATUS=x").unwrap();
            let mut told = [0; 100];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1\nSTATUS=x");
        }
        assert!(send(folder.path().join("nobody").as_os_str(), "x").is_err());
    }
}
