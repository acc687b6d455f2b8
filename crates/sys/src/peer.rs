//! Unix sockets: who is at the other end, and open files that are handed over.
#![allow(unsafe_code)]

use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
};

/// Who was at the other end of a connection when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user.
    pub uid: u32,
    /// The group, and all others that the user was in.
    pub groups: Vec<u32>,
}

/// More are nobody's; the kernel allows 65,536.
const GROUPS_MAX: usize = 65_536;

/// Who is at the other end of a connected socket.
#[doc(alias = "SO_PEERCRED")]
#[doc(alias = "SO_PEERGROUPS")]
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    let mut groups = vec![credentials.gid.as_raw(); GROUPS_MAX];
    let mut bytes = (GROUPS_MAX * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as it is told there is room for.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(bytes as usize / size_of::<u32>());
    groups.push(credentials.gid.as_raw());
    // It is kept as long as the connection.
    groups.shrink_to_fit();
    Ok(Peer { uid: credentials.uid.as_raw(), groups })
}

/// The user at the other end of a connected socket.
#[doc(alias = "SO_PEERCRED")]
pub fn user_of(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// The process that listened at the other end of a connected socket, or that had connected; `None` where it is in another
/// namespace. With a socket that systemd listens at for a service, it is systemd.
#[doc(alias = "SO_PEERCRED")]
pub fn process_of(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most as many bytes as it is told there is room for, and any bytes are a `ucred`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0))
}

/// Connects to a listening Unix socket without waiting: `WouldBlock` where as many wait to be taken as may. What comes after waits as
/// usual.
#[doc(alias = "connect")]
pub fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Sends bytes, and an open file with the first of them.
#[doc(alias = "SCM_RIGHTS")]
pub fn send_with_file(socket: BorrowedFd<'_>, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    Ok(rustix::net::sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and an open file if one came with them. No byte: the other end has closed.
pub fn receive_with_file(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [io::IoSliceMut::new(bytes)];
    let received = loop {
        match rustix::net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done?,
        }
    };
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((received.bytes, file))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::files;

    #[test]
    fn a_file_goes_with_the_first_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dir = files::open_dir(folder.path()).unwrap();
        assert_eq!(send_with_file(one.as_fd(), b"hello", dir.as_fd()).unwrap(), 5);
        let mut buffer = [0; 16];
        let (bytes, file) = receive_with_file(other.as_fd(), &mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"hello");
        let ino = |fd: BorrowedFd<'_>| files::statx_fd(fd).unwrap().ino;
        assert_eq!(ino(file.unwrap().as_fd()), ino(dir.as_fd()));
        drop(one);
        assert!(matches!(receive_with_file(other.as_fd(), &mut buffer), Ok((0, None))));
    }

    #[test]
    fn the_peer_is_who_made_the_socket() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = peer_of(one.as_fd()).unwrap();
        assert_eq!(peer.uid, crate::user::effective_uid());
        assert_eq!(process_of(one.as_fd()).unwrap(), Some(std::process::id()));
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
    }
}
