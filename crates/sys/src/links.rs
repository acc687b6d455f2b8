//! When links and addresses of the network come and go, and who is asked for on them.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
    netlink::SocketAddrNetlink,
    recv, sendto, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::ready::{self, Bell, Wanted};

/// `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Tells when links or addresses of this network namespace have changed. Needs no privilege.
#[derive(Debug)]
#[doc(alias = "netlink")]
pub struct LinkWatch(OwnedFd);

impl LinkWatch {
    /// Watches from now on.
    pub fn new() -> io::Result<LinkWatch> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // `NETLINK_ROUTE` is the protocol that is meant where none is named.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(LinkWatch(socket))
    }

    /// Waits until something has changed, the bell is rung, or the time is over; whether something has changed. What changed
    /// before the call is heard as well; several changes are one.
    pub fn wait(&self, bell: &Bell, time: Option<Duration>) -> io::Result<bool> {
        let wanted = Wanted { read: true, write: false };
        if !ready::wait(self.0.as_fd(), wanted, bell, time)?.read {
            return Ok(false);
        }
        let mut message = [0; 4096];
        loop {
            match recv(&self.0, &mut message, RecvFlags::empty()) {
                // What was lost was a change as well.
                Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST`, with `NLM_F_DUMP` or `NLM_F_ACK`.
const ALL_OF_THEM: u16 = 0x1 | 0x300;
const ACKNOWLEDGED: u16 = 0x1 | 0x4;
const NDA_DST: u16 = 1;
/// `NUD_INCOMPLETE | NUD_FAILED`: asked for, and nobody has answered.
const UNANSWERED: u16 = 0x01 | 0x20;
/// `struct nlmsghdr` and `struct ndmsg`.
const HEAD: usize = 16;
const NEIGHBOUR: usize = 12;

/// Has the kernel forget that it has asked for this address on its links, where nobody has answered yet: then it asks again at once,
/// when somebody sends there, and not after a second. How many entries went. Needs `CAP_NET_ADMIN`.
#[doc(alias = "RTM_DELNEIGH")]
pub fn forget_unanswered(address: IpAddr) -> io::Result<usize> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    };
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    // It always answers at once; nobody waits here for good if it should not.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1)))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    let mut asked = [0; NEIGHBOUR];
    asked[0] = family;
    sendto(&socket, &message(RTM_GETNEIGH, ALL_OF_THEM, &asked), SendFlags::empty(), &kernel)?;
    let mut unanswered = Vec::new();
    each_answer(&socket, |kind, body| {
        if kind == RTM_NEWNEIGH && is_unanswered(body, &bytes) {
            unanswered.extend(body.get(4..8).and_then(|index| index.try_into().ok()).map(i32::from_ne_bytes));
        }
        Ok(kind == NLMSG_DONE)
    })?;
    for index in &unanswered {
        let mut body = [0; NEIGHBOUR].to_vec();
        body[0] = family;
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body.extend((4 + bytes.len() as u16).to_ne_bytes());
        body.extend(NDA_DST.to_ne_bytes());
        body.extend(&bytes);
        sendto(&socket, &message(RTM_DELNEIGH, ACKNOWLEDGED, &body), SendFlags::empty(), &kernel)?;
        // The acknowledgement is an error of number 0.
        each_answer(&socket, |kind, _| Ok(kind == NLMSG_ERROR))?;
    }
    Ok(unanswered.len())
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEAD + body.len());
    message.extend(((HEAD + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Hands over each message of an answer, until it is told that this was the last one. What the kernel calls an error is one.
fn each_answer(socket: &OwnedFd, mut take: impl FnMut(u16, &[u8]) -> io::Result<bool>) -> io::Result<()> {
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let (count, _) = rustix::io::retry_on_intr(|| recv(socket, &mut buffer[..], RecvFlags::empty()))?;
        let mut rest = &buffer[..count];
        while let Some((head, _)) = rest.split_at_checked(HEAD) {
            let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let kind = u16::from_ne_bytes([head[4], head[5]]);
            let Some(body) = rest.get(HEAD..len) else { return Err(io::ErrorKind::InvalidData.into()) };
            if kind == NLMSG_ERROR
                && let Some(number) = body.first_chunk().map(|number| i32::from_ne_bytes(*number))
                && number != 0
            {
                return Err(io::Error::from_raw_os_error(-number));
            }
            if take(kind, body)? {
                return Ok(());
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// Whether an entry is of this address, and nobody has answered.
fn is_unanswered(body: &[u8], address: &[u8]) -> bool {
    let state = body.get(8..10).and_then(|state| state.try_into().ok()).map_or(0, u16::from_ne_bytes);
    let mut rest = body.get(NEIGHBOUR..).unwrap_or_default();
    while let [low, high, kind_low, kind_high, ..] = *rest {
        let len = usize::from(u16::from_ne_bytes([low, high]));
        if u16::from_ne_bytes([kind_low, kind_high]) == NDA_DST {
            return state & UNANSWERED != 0 && rest.get(4..len) == Some(address);
        }
        rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, SocketAddr, TcpStream},
        process::Command,
        thread,
    };

    use super::*;
    use crate::testing::skipped;

    fn ip(words: &[&str]) -> bool {
        Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
    }

    #[test]
    fn a_link_that_comes_is_heard_once() {
        let (watch, bell) = (LinkWatch::new().unwrap(), Bell::new().unwrap());
        let name = format!("osw{}", std::process::id() % 100_000);
        // Few kernels have neither.
        let other = format!("{name}p");
        let made = ip(&["link", "add", &name, "type", "veth", "peer", "name", &other])
            || ip(&["link", "add", &name, "type", "dummy"]);
        if !made {
            return skipped("no network link can be made");
        }
        let came = watch.wait(&bell, Some(Duration::from_secs(10)));
        assert!(ip(&["link", "del", &name]));
        assert!(came.unwrap());
    }

    fn told(words: &[&str]) -> String {
        let output = Command::new("ip").args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// On a link of its own namespace, at whose other end nobody is.
    #[test]
    fn who_has_not_answered_is_forgotten_and_asked_for_anew() {
        let is_done = thread::spawn(|| {
            if !crate::testing::in_own_network() || !ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"])
            {
                return false;
            }
            for words in [
                &["address", "add", "10.9.0.1/24", "dev", "one"][..],
                &["link", "set", "one", "up"],
                &["link", "set", "two", "up"],
            ] {
                assert!(ip(words), "{words:?}");
            }
            let nobody = Ipv4Addr::new(10, 9, 0, 2);
            let connect = || TcpStream::connect_timeout(&SocketAddr::from((nobody, 9)), Duration::from_millis(50));
            connect().unwrap_err();
            assert!(
                told(&["neigh", "show", "nud", "all"]).contains("10.9.0.2"),
                "{}",
                told(&["neigh", "show", "nud", "all"])
            );
            assert_eq!(forget_unanswered(Ipv4Addr::new(10, 9, 0, 3).into()).unwrap(), 0);
            assert_eq!(forget_unanswered(nobody.into()).unwrap(), 1);
            assert!(!told(&["neigh", "show", "nud", "all"]).contains("10.9.0.2"));
            assert_eq!(forget_unanswered(nobody.into()).unwrap(), 0);
            connect().unwrap_err();
            assert_eq!(forget_unanswered(nobody.into()).unwrap(), 1, "it is asked for again");
            true
        });
        if !is_done.join().unwrap() {
            skipped("no network namespace can be made");
        }
    }

    #[test]
    fn the_bell_ends_the_wait() {
        let (watch, bell) = (LinkWatch::new().unwrap(), Bell::new().unwrap());
        bell.ring();
        // Other tests may change links; the bell is heard all the same.
        watch.wait(&bell, None).unwrap();
    }
}
