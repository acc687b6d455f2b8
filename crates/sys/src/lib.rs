//! The system calls of onesweep.
/// Stand-in until the real module lands.
pub mod buffer {
    /// Owned bytes.
    #[derive(Debug)]
    pub struct Bytes(Vec<u8>);
    impl Bytes {
        /// A copy.
        pub fn copy_of(bytes: &[u8]) -> Self {
            Self(bytes.to_vec())
        }
    }
    impl std::ops::Deref for Bytes {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            &self.0
        }
    }
}
