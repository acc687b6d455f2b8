//! A change of the network is noticed by the client itself. Each test runs in a network of its own, of which nobody else takes notice.

use std::{env, process::Command, thread};

use onesweep_peer::client::Peers;

use crate::support::{LONG, client, counted, eventually, hasty, memory, server};

/// Tells this program that it is the one in a network of its own.
const WITHIN: &str = "ONESWEEP_TEST_OWN_NETWORK";

/// Runs the rest of a test, which is called so, in another process with a network where nothing is but a loopback that is down.
pub(crate) fn in_own_network(test: &str, body: impl FnOnce()) {
    if env::var_os(WITHIN).is_some() {
        return body();
    }
    let own = ["--user", "--map-root-user", "--net"];
    if !Command::new("unshare").args(own).args(["ip", "link"]).output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no network can be made");
    }
    let mut again = Command::new("unshare");
    again.args(own).arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(WITHIN, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn loopback(state: &str) {
    assert!(Command::new("ip").args(["link", "set", "lo", state]).status().unwrap().success(), "{state}");
}

#[test]
fn a_link_that_comes_has_servers_tried_at_once() {
    in_own_network("networks::a_link_that_comes_has_servers_tried_at_once", || {
        loopback("up");
        let server = server(memory());
        loopback("down");
        let peers = Peers::connect([server.address().to_string()], hasty()).unwrap();
        // By now it would be tried again after more than a second.
        eventually("it was tried some times", || counted(&peers).refused >= 5);
        // What was told of the link before is over.
        let (changes, nudges) = (peers.network_changes(), counted(&peers).nudges);
        loopback("up");
        assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
        eventually("the change was heard", || peers.network_changes() > changes);
        eventually("and it was tried for that", || counted(&peers).nudges > nudges);
    });
}

#[test]
fn a_connection_is_doubted_when_its_link_has_changed() {
    in_own_network("networks::a_connection_is_doubted_when_its_link_has_changed", || {
        loopback("up");
        let server = server(memory());
        let peers = client(server.address());
        let nudges = counted(&peers).nudges;
        let (tell, told) = std::sync::mpsc::channel();
        let here = thread::current().id();
        peers.on_network_change(move || _ = tell.send(thread::current().id()));
        loopback("down");
        assert_ne!(told.recv_timeout(LONG).unwrap(), here, "who asked to be told is told");
        eventually("the server is pinged", || counted(&peers).nudges > nudges);
        loopback("up");
        eventually("and is there again", || peers.is_usable());
    });
}
