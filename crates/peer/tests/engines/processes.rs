//! Programs that are started for a test, and end with it.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use redis::Connection;

use crate::support::{LONG, eventually};

/// A program, which is killed when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.0.id().to_string()).status().unwrap();
        assert!(status.success(), "kill {signal}");
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Redis server of this test alone.
pub(crate) struct RedisServer {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl RedisServer {
    /// On a port that was free just now; where somebody else was quicker, on another one.
    pub(crate) fn start(dir: &Path, options: &[&str]) -> Self {
        let start = || {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            Self::try_on(port, dir, options)
        };
        (0..20).find_map(|_| start()).expect("redis-server starts")
    }

    /// At the same place again.
    pub(crate) fn try_on(port: u16, dir: &Path, options: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(dir).args(options);
        let child = command.stdout(Stdio::null()).spawn().expect("redis-server (make engines-test installs it)");
        let mut server = Self { process: Process(child), port };
        // Whoever answers there may be another one.
        let pid = server.process.0.id().to_string();
        for _ in 0..LONG.as_millis() / 20 {
            if server.process.0.try_wait().unwrap().is_some() {
                return None;
            }
            if server.try_connect().and_then(|mut redis| is_process(&mut redis, &pid)).is_some() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("redis-server says nothing at {port}");
    }

    fn try_connect(&self) -> Option<Connection> {
        redis::Client::open(("127.0.0.1", self.port)).ok()?.get_connection_with_timeout(LONG).ok()
    }

    pub(crate) fn connect(&self) -> Connection {
        self.try_connect().expect("a connection")
    }

    /// Keys there.
    pub(crate) fn keys(&self) -> u64 {
        redis::cmd("DBSIZE").query(&mut self.connect()).unwrap()
    }
}

fn is_process(redis: &mut Connection, pid: &str) -> Option<()> {
    let about: String = redis::cmd("INFO").arg("server").query(redis).ok()?;
    about.lines().any(|line| line.trim() == format!("process_id:{pid}")).then_some(())
}

/// Three Redis servers that share the slots.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
    _dirs: Vec<tempfile::TempDir>,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let nodes: Vec<_> = dirs.iter().map(|dir| start_node(dir.path())).collect();
        let slots = [(0, 5460), (5461, 10_922), (10_923, 16_383)];
        for (node, (first, last)) in nodes.iter().zip(slots) {
            redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last).exec(&mut node.connect()).unwrap();
        }
        for node in &nodes[1..] {
            let bus = nodes[0].bus_port();
            let mut meet = redis::cmd("CLUSTER");
            meet.arg("MEET").arg("127.0.0.1").arg(nodes[0].port).arg(bus).exec(&mut node.connect()).unwrap();
        }
        let cluster = Self { nodes, _dirs: dirs };
        eventually("the cluster stands", || cluster.nodes.iter().all(|node| node.is_ok_with(3)));
        cluster
    }

    pub(crate) fn address(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}?timeout=2s", hosts.join(","))
    }
}

fn start_node(dir: &Path) -> RedisServer {
    // A port of its own for what nodes say to each other: else it is the other one and 10,000, which may be too much.
    let start = || {
        let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "2000",
            "--cluster-require-full-coverage",
            "no",
            "--cluster-port",
            &bus,
        ];
        RedisServer::try_on(port, dir, &options)
    };
    (0..20).find_map(|_| start()).expect("redis-server starts")
}

impl RedisServer {
    fn bus_port(&self) -> u16 {
        let line: String = redis::cmd("CLUSTER").arg("NODES").query(&mut self.connect()).unwrap();
        let own = line.lines().find(|line| line.contains("myself")).unwrap();
        // ID HOST:PORT@BUS ...
        let bus = own.split_once('@').unwrap().1;
        bus.split([' ', ',']).next().unwrap().parse().unwrap()
    }

    fn is_ok_with(&self, nodes: usize) -> bool {
        let about: String = redis::cmd("CLUSTER").arg("INFO").query(&mut self.connect()).unwrap();
        let says = |what: &str| about.lines().any(|line| line.trim() == what);
        says("cluster_state:ok")
            && says(&format!("cluster_known_nodes:{nodes}"))
            && says("cluster_slots_assigned:16384")
    }
}

/// S3, as far as moto plays it.
pub(crate) struct Moto {
    pub(crate) process: Process,
    /// Host and port.
    pub(crate) address: String,
}

impl Moto {
    pub(crate) fn start() -> Self {
        let program =
            std::env::var_os("ONESWEEP_MOTO").expect("ONESWEEP_MOTO names moto_server (make engines-test sets it)");
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("moto_server");
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = said.next().expect("moto_server says where it listens").unwrap();
            if let Some((_, address)) = line.split_once("Running on http://") {
                break address.split_whitespace().next().unwrap().to_owned();
            }
        };
        thread::spawn(move || said.for_each(drop));
        Self { process: Process(child), address }
    }
}
