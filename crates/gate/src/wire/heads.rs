//! Where each message begins and ends in a stream that arrives in pieces of any size. Only heads are looked at: the type
//! byte, the length, and the first byte of the body. A stream that makes no sense is relayed without being looked at.

/// A message's head. It is told when its first six bytes have arrived (five where it has no body), before the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The type byte.
    pub kind: u8,
    /// Bytes of the body, without type and length.
    pub body_bytes: u64,
    /// The body's first byte: the transaction's state in a ReadyForQuery.
    pub first: Option<u8>,
}

/// The reader of one direction.
#[derive(Clone, Debug, Default)]
pub struct Heads {
    head: [u8; 6],
    have: u8,
    /// Bytes of the body that are still to come.
    left: u64,
    opaque: bool,
    told: u64,
    /// The kind whose bodies are kept.
    keep: Option<u8>,
    /// The last such body, or what has come of it.
    kept: Vec<u8>,
    keeping: bool,
}

/// Longer bodies are not kept: a cancel key has 4 to 260 bytes.
const MOST_KEPT_BYTES: u64 = 512;

impl Heads {
    /// A reader that stands at the beginning of a message.
    pub fn new() -> Self {
        Heads::default()
    }

    /// A reader that looks at nothing: the stream is encrypted, or no PostgreSQL.
    pub fn opaque() -> Self {
        Heads { opaque: true, ..Heads::default() }
    }

    /// Keeps the body of each message of this kind until [`Heads::take_kept`]; of none from now on where None is given.
    pub fn keep(&mut self, kind: Option<u8>) {
        self.keep = kind;
    }

    /// The last body that was kept, once it is whole. It is given once.
    pub fn take_kept(&mut self) -> Option<Vec<u8>> {
        let whole = !self.keeping && !self.kept.is_empty();
        whole.then(|| std::mem::take(&mut self.kept))
    }

    /// Whether the stream is no longer looked at.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }

    /// Whether all messages that began have ended. An opaque stream is never known to be there.
    pub fn at_boundary(&self) -> bool {
        !self.opaque && self.have == 0 && self.left == 0
    }

    /// How many heads were told.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Takes the next bytes of the stream and tells each head in them.
    pub fn feed(&mut self, bytes: &[u8], mut tell: impl FnMut(Head)) {
        let mut rest = bytes;
        while !self.opaque && !rest.is_empty() {
            if self.left > 0 {
                let skip = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= skip as u64;
                if self.keeping {
                    self.kept.extend_from_slice(&rest[..skip]);
                    self.keeping = self.left > 0;
                }
                rest = &rest[skip..];
                continue;
            }
            self.head[usize::from(self.have)] = rest[0];
            self.have += 1;
            rest = &rest[1..];
            if self.have >= 5 {
                self.try_head(&mut tell);
            }
        }
    }

    fn try_head(&mut self, tell: &mut impl FnMut(Head)) {
        let [kind, a, b, c, d, first] = self.head;
        let length = i32::from_be_bytes([a, b, c, d]);
        let Some(body) = u32::try_from(length).ok().and_then(|length| length.checked_sub(4)) else {
            self.opaque = true;
            return;
        };
        let body_bytes = u64::from(body);
        if body_bytes > 0 && self.have == 5 {
            return;
        }
        let first = (body_bytes > 0).then_some(first);
        self.have = 0;
        self.left = body_bytes.saturating_sub(1);
        self.told += 1;
        if self.keep == Some(kind) && body_bytes <= MOST_KEPT_BYTES {
            self.kept.clear();
            self.kept.extend(first);
            self.keeping = self.left > 0;
        }
        tell(Head { kind, body_bytes, first });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(messages: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, body) in messages {
            bytes.push(*kind);
            bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(body);
        }
        bytes
    }

    #[test]
    fn a_length_that_cannot_be_ends_the_looking_not_the_stream() {
        let mut heads = Heads::new();
        let mut seen = Vec::new();
        heads.feed(b"Z\0\0\0\x05IQ\0\0\0\x03more", |head| seen.push(head));
        assert_eq!(seen, [Head { kind: b'Z', body_bytes: 1, first: Some(b'I') }]);
        assert!(heads.is_opaque() && !heads.at_boundary());
    }

    #[test]
    fn a_body_is_kept_however_it_is_cut() {
        let bytes = stream(&[(b'R', vec![0; 4]), (b'K', vec![1, 2, 3, 4, 5, 6, 7, 8]), (b'Z', vec![b'I'])]);
        for cut in 1..bytes.len() {
            let mut heads = Heads::new();
            heads.keep(Some(b'K'));
            heads.feed(&bytes[..cut], |_| ());
            heads.feed(&bytes[cut..], |_| ());
            assert_eq!(heads.take_kept(), Some(vec![1, 2, 3, 4, 5, 6, 7, 8]), "{cut}");
            assert_eq!(heads.take_kept(), None);
        }
    }

    proptest! {
        /// However the stream is cut, the same heads are told, and the boundary is known.
        #[test]
        fn heads_do_not_depend_on_how_the_stream_is_cut(
            messages in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20),
            cuts in prop::collection::vec(1..50usize, 1..100),
        ) {
            let bytes = stream(&messages);
            let mut heads = Heads::new();
            let (mut seen, mut rest, mut cuts) = (Vec::new(), bytes.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*cuts.next().unwrap_or(&1)).min(rest.len()));
                heads.feed(piece, |head| seen.push(head));
                rest = after;
            }
            let wanted: Vec<Head> = messages.iter().map(|(kind, body)| Head { kind: *kind, body_bytes: body.len() as u64, first: body.first().copied() }).collect();
            prop_assert_eq!(seen, wanted);
            prop_assert!(heads.at_boundary());
        }

        #[test]
        fn any_bytes_are_survived(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20)) {
            let mut heads = Heads::new();
            heads.keep(Some(0));
            for piece in pieces { heads.feed(&piece, |_| ()); }
        }
    }
}
