//! Making BSON documents, for the encoder and for whoever makes fixtures.

use crate::bson::{Element, kind};

/// A document in the making. Keys may be repeated, as mongod's own documents repeat them.
///
/// A key ends at its first zero byte: what follows is left out, because BSON has no way to write it.
#[derive(Clone, Debug)]
pub struct Builder {
    bytes: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// An empty document.
    pub fn new() -> Self {
        Builder { bytes: vec![0; 4] }
    }

    fn put(mut self, kind: u8, key: &str, value: &[u8]) -> Self {
        self.key(kind, key.as_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    fn key(&mut self, kind: u8, key: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend(key.iter().take_while(|byte| **byte != 0));
        self.bytes.push(0);
    }

    /// A double.
    pub fn double(self, key: &str, value: f64) -> Self {
        self.put(kind::DOUBLE, key, &value.to_le_bytes())
    }

    /// A 32-bit integer.
    pub fn int32(self, key: &str, value: i32) -> Self {
        self.put(kind::INT32, key, &value.to_le_bytes())
    }

    /// A 64-bit integer.
    pub fn int64(self, key: &str, value: i64) -> Self {
        self.put(kind::INT64, key, &value.to_le_bytes())
    }

    /// A truth value.
    pub fn bool(self, key: &str, value: bool) -> Self {
        self.put(kind::BOOL, key, &[u8::from(value)])
    }

    /// A date in milliseconds since 1970.
    pub fn date(self, key: &str, unix_ms: i64) -> Self {
        self.put(kind::DATE, key, &unix_ms.to_le_bytes())
    }

    /// A timestamp of the replication log: seconds since 1970 and a counter within the second.
    pub fn timestamp(self, key: &str, seconds: u32, increment: u32) -> Self {
        let value = (u64::from(seconds) << 32) | u64::from(increment);
        self.put(kind::TIMESTAMP, key, &value.to_le_bytes())
    }

    /// A decimal number, as BSON stores it (IEEE 754-2008 decimal128, binary integer, low word first).
    pub fn decimal(self, key: &str, bits: u128) -> Self {
        self.put(kind::DECIMAL, key, &bits.to_le_bytes())
    }

    /// A string.
    pub fn string(self, key: &str, value: &str) -> Self {
        let length = u32::try_from(value.len() + 1).unwrap_or(u32::MAX);
        let mut built = self.put(kind::STRING, key, &length.to_le_bytes());
        built.bytes.extend_from_slice(value.as_bytes());
        built.bytes.push(0);
        built
    }

    /// Bytes, of the generic subtype.
    pub fn binary(self, key: &str, value: &[u8]) -> Self {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut built = self.put(kind::BINARY, key, &length.to_le_bytes());
        built.bytes.push(0);
        built.bytes.extend_from_slice(value);
        built
    }

    /// A null.
    pub fn null(self, key: &str) -> Self {
        self.put(kind::NULL, key, &[])
    }

    /// A document within, filled by `fill`.
    pub fn document(self, key: &str, fill: impl FnOnce(Builder) -> Builder) -> Self {
        let inside = fill(Builder::new()).finish();
        self.put(kind::DOCUMENT, key, &inside)
    }

    /// An array within; `fill` gives its elements the keys "0", "1" and so on.
    pub fn array(self, key: &str, fill: impl FnOnce(Builder) -> Builder) -> Self {
        let inside = fill(Builder::new()).finish();
        self.put(kind::ARRAY, key, &inside)
    }

    /// A whole document within, that was made elsewhere.
    pub fn raw_document(self, key: &str, document: &[u8]) -> Self {
        self.put(kind::DOCUMENT, key, document)
    }

    /// An element of another document, as it is.
    pub fn element(mut self, element: &Element<'_>) -> Self {
        self.key(element.kind, element.key);
        self.bytes.extend_from_slice(element.value);
        self
    }

    /// The document. (A document of more than 2 GiB would have no valid length; nothing here makes one.)
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[..4].copy_from_slice(&length.to_le_bytes());
        self.bytes
    }
}
