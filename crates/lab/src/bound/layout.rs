//! The output of `filefrag -v`.

use crate::address_runs::AddressRun;

/// Where files lie, in bytes of the device.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Layout {
    pub(super) files: u64,
    /// Bytes in the files, holes included up to their size.
    pub(super) bytes: u64,
    pub(super) extents: Vec<AddressRun>,
}

/// Flags of extents that hold no data on the device at the address they show.
const NOWHERE: [&str; 4] = ["inline", "unwritten", "delalloc", "unknown_loc"];

impl Layout {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut layout = Self::default();
        let mut block = 4096;
        for line in text.lines() {
            if let Some((size, of)) = header(line) {
                layout.files += 1;
                layout.bytes += size;
                block = of;
            } else if let Some(run) = extent(line, block).map_err(|what| format!("filefrag: {what} in {line:?}"))? {
                layout.extents.push(run);
            }
        }
        Ok(layout)
    }
}

/// `File size of NAME is 5000 (2 blocks of 4096 bytes)`
fn header(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("File size of ")?.strip_suffix(" bytes)")?;
    let (left, block) = rest.rsplit_once(" of ")?;
    let (left, _) = left.rsplit_once(" (")?;
    let (_, size) = left.rsplit_once(" is ")?;
    Some((size.parse().ok()?, block.parse().ok()?))
}

/// `   0:        0..       1:      34304..     34305:      2:             last,eof`
fn extent(line: &str, block: u64) -> Result<Option<AddressRun>, &'static str> {
    let fields: Vec<&str> = line.split(':').map(str::trim).collect();
    let [index, _, physical, length, rest @ ..] = &fields[..] else {
        return Ok(None);
    };
    if index.parse::<u64>().is_err() {
        return Ok(None);
    }
    let flags = rest.last().copied().unwrap_or_default();
    if flags.split(',').any(|flag| NOWHERE.contains(&flag)) {
        return Ok(None);
    }
    let start: u64 = physical.split("..").next().unwrap_or_default().trim().parse().map_err(|_| "no address")?;
    let length: u64 = length.parse().map_err(|_| "no length")?;
    let start = start.checked_mul(block).ok_or("too large an address")?;
    let end = length.checked_mul(block).and_then(|len| start.checked_add(len)).ok_or("too large a length")?;
    Ok(Some(AddressRun { start, end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filefrag_is_read() {
        let text = "\
Filesystem type is: ef53
File size of ./a is of 3 (b is 13000 (4 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       1:         10..        11:      2:            
   1:        2..       3:         20..        21:      2:         12: last,eof
./a: 2 extents found
File size of ./b is 100 (1 block of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       0:          0..         0:      1:             last,not_aligned,inline,eof
./b: 1 extent found
";
        let layout = Layout::parse(text).unwrap();
        assert_eq!((layout.files, layout.bytes), (2, 13_100));
        assert_eq!(
            layout.extents,
            [AddressRun { start: 40_960, end: 49_152 }, AddressRun { start: 81_920, end: 90_112 }]
        );
        assert!(Layout::parse("0: 0..1: x..y: 2: last").is_err());
    }
}
