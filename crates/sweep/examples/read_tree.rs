//! Reads every file below the named paths and counts: `read_tree [fragment|…] PATH…`.

use onesweep::{BulkRead, Order};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    let order = paths.first().and_then(|first| first.parse::<Order>().ok());
    if order.is_some() {
        paths.remove(0);
    }
    let mut bytes = 0;
    let summary = BulkRead::new(paths).order(order.unwrap_or_default()).run(|item| {
        match item {
            Ok(file) => bytes += file.bytes().map_or(0, <[u8]>::len),
            Err(failed) => eprintln!("{failed}"),
        }
        true
    })?;
    println!("{bytes} bytes in memory; {summary:#?}");
    Ok(())
}
