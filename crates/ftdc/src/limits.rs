//! What a reader accepts. Lengths in a file are claims; nothing is allocated because a file says so.

/// Bounds on what one document may cost. Of values the default is four times what mongod itself accepts when it reads its
/// own files back (1,000,000: `src/mongo/db/ftdc/decompressor.cpp`), because larger deployments have been seen to write a
/// little more than that. Of bytes inflated it is mongod's own (10,000,000): each thread that decodes may hold so many,
/// beside the values that all of them share (see [`parallel::decode`](crate::parallel::decode)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document in the file. MongoDB's own limit of a document is 16 MiB and 16 KiB.
    pub document_bytes: usize,
    /// Bytes of a chunk once inflated, in each thread.
    pub inflated_bytes: usize,
    /// Metrics in a chunk.
    pub metrics: usize,
    /// Bytes of the names of all metrics in a chunk, each with its whole path.
    pub name_bytes: usize,
    /// Values (metrics times samples) in a chunk; eight bytes each once decoded.
    pub values: usize,
    /// Documents within documents.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            document_bytes: (16 << 20) + (16 << 10),
            inflated_bytes: 10_000_000,
            metrics: 100_000,
            name_bytes: 8 << 20,
            values: 4 << 20,
            depth: 32,
        }
    }
}
