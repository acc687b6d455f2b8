//! When links and addresses of the network come and go.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv, socket_with,
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

#[cfg(test)]
mod tests {
    use std::process::Command;

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

    #[test]
    fn the_bell_ends_the_wait() {
        let (watch, bell) = (LinkWatch::new().unwrap(), Bell::new().unwrap());
        bell.ring();
        // Other tests may change links; the bell is heard all the same.
        watch.wait(&bell, None).unwrap();
    }
}
