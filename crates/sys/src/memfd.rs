//! Files in memory: empty ones, and bytes that nobody can change any more.

use std::{
    fs::File,
    io::{self, Seek, Write},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
};

/// An empty file in memory, which goes with its last descriptor and mapping.
#[doc(alias = "memfd_create")]
pub fn empty() -> io::Result<File> {
    Ok(File::from(memfd_create("onesweep", MemfdFlags::CLOEXEC)?))
}

/// A file in memory with these bytes, read from its start. Whoever gets it can neither write, nor cut, nor lengthen it. It takes
/// as much memory as there are bytes, and goes with its last descriptor.
#[doc(alias = "memfd_create")]
#[doc(alias = "F_ADD_SEALS")]
pub fn sealed(bytes: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match memfd_create("onesweep", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create("onesweep", flags),
        made => made,
    };
    let mut file = File::from(made?);
    file.write_all(bytes)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn nobody_changes_it() {
        let mut file = sealed(b"content").unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"content");
        file.rewind().unwrap();
        assert_eq!(file.write(b"C").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(file.set_len(3).is_err() && file.set_len(100).is_err());
        assert_eq!(sealed(b"").unwrap().metadata().unwrap().len(), 0);
    }
}
