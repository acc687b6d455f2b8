//! A server of blocks above real engines: a `redis-server`, a cluster of three of them, and `moto_server` for S3
//! (`make engines-test`).

mod cluster;
mod mounts;
mod processes;
mod program;
mod redis;
mod s3;
mod scans;
mod site;
mod support;
