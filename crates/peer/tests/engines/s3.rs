//! S3, by moto.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::{
    processes::Moto,
    support::{Together, block, domain_name, eventually},
};

const BUCKET: &str = "blocks";
const AUTHORIZATION: &str =
    "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

fn credentials(name: &str) -> Option<String> {
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name).then(|| "testing".to_owned())
}

/// Says something to the server. A name is enough for moto; it doesn't look at signatures.
fn http(moto: &Moto, method: &str, path: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(&moto.address).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {AUTHORIZATION}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        moto.address,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn start() -> Moto {
    let moto = Moto::start();
    let answer = http(&moto, "PUT", &format!("/{BUCKET}"), b"");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    moto
}

pub(crate) fn address(moto: &Moto, more: &str) -> String {
    format!("s3://{BUCKET}/some/where?endpoint=http://{}&timeout=2s{more}", moto.address)
}

fn above(moto: &Moto, more: &str) -> Together {
    Together::with(&address(moto, more), 0, &credentials)
}

fn path(n: u32) -> String {
    let hash = block(n).0.to_string();
    format!("/{BUCKET}/some/where/onesweep-1/{}/{}/{hash}", domain_name(), &hash[..2])
}

pub(crate) fn objects(moto: &Moto) -> usize {
    http(moto, "GET", &format!("/{BUCKET}?list-type=2"), b"").matches("<Key>").count()
}

#[test]
fn blocks_come_back_and_wrong_ones_are_refused_and_removed() {
    let moto = start();
    let together = above(&moto, "");
    together.fill(0..40);
    assert_eq!(objects(&moto), 40);
    drop(together);
    let together = above(&moto, "");
    assert_eq!(together.there(0..45), (0..40).collect::<Vec<_>>());
    let hashes: Vec<_> = (35..45).map(|n| block(n).0).collect();
    assert_eq!(together.peers.has_and_wait(&hashes).unwrap(), (35..45).map(|n| n < 40).collect::<Vec<_>>());
    for (n, bytes) in [(0, block(1).1), (1, vec![1; 1 << 20]), (2, Vec::new())] {
        let answer = http(&moto, "PUT", &path(n), &bytes);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    eventually("all three are refused", || {
        assert!(together.there(0..3).is_empty());
        together.figure("store_engine_wrong") == 3
    });
    eventually("and removed", || objects(&moto) == 37);
    eventually("they are put again", || {
        (0..3).all(|n| together.peers.put_and_wait(&block(n).0, &block(n).1).is_ok()) && together.there(0..3).len() == 3
    });
}

#[test]
fn a_limit_holds_also_for_what_was_there_before() {
    let moto = start();
    let together = above(&moto, "");
    together.fill(0..30);
    drop(together);
    let together = above(&moto, "&limit=80K");
    eventually("the oldest went", || objects(&moto) == 20);
    for n in 100..110 {
        let (hash, bytes) = block(n);
        together.peers.put_and_wait(&hash, &bytes).unwrap();
    }
    eventually("the limit holds", || objects(&moto) == 20 && together.figure("store_engine_waiting_bytes") == 0);
    assert_eq!(together.there(100..110).len(), 10);
    assert_eq!(together.figure("block_bytes"), 80 << 10);
}

#[test]
fn a_store_that_is_stopped_or_gone_or_has_no_such_bucket_only_fails_to_help() {
    let mut moto = start();
    let together = above(&moto, "");
    together.fill(0..20);
    moto.process.signal("-STOP");
    assert_eq!(together.there(0..20), [0; 0]);
    moto.process.signal("-CONT");
    eventually("it is asked again", || together.there(0..20).len() == 20);
    let nowhere = Together::with(&format!("s3://nowhere?endpoint=http://{}&timeout=2s", moto.address), 0, &credentials);
    assert_eq!(nowhere.there(0..5), [0; 0]);
    moto.process.kill();
    assert_eq!(together.there(0..20), [0; 0]);
    assert!(together.figure("store_engine_failures") > 0);
}
