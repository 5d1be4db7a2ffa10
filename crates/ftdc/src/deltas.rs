//! The deltas of a chunk: metric after metric, one varint (LEB128) for each sample after the first, a zero followed by
//! how many more zeros there are. A run of zeros may go on into the next metrics.

/// A reader of deltas. Stands at the beginning of a metric between calls.
#[derive(Clone, Debug)]
pub(crate) struct Deltas<'a> {
    bytes: &'a [u8],
    /// Zeros of a run that are still to come.
    zeros: u64,
}

/// The bytes end, or a varint is longer than 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl<'a> Deltas<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Deltas { bytes, zeros: 0 }
    }

    /// Fills `out` with a metric's values: `first`, then one for each delta.
    #[inline]
    pub(crate) fn column(&mut self, first: i64, out: &mut [i64]) -> Result<(), Broken> {
        let Some(head) = out.first_mut() else { return Ok(()) };
        *head = first;
        let mut value = first;
        let mut at = 1;
        while at < out.len() {
            if self.zeros > 0 {
                let run = usize::try_from(self.zeros).unwrap_or(usize::MAX).min(out.len() - at);
                out[at..at + run].fill(value);
                self.zeros -= run as u64;
                at += run;
                continue;
            }
            let delta = self.varint()?;
            if delta == 0 {
                // As many as there can be at most: a run longer than 2^64 is not told from one a zero shorter.
                self.zeros = self.varint()?.saturating_add(1);
                continue;
            }
            value = value.wrapping_add(delta as i64);
            out[at] = value;
            at += 1;
        }
        Ok(())
    }

    /// Passes over a metric of `count` deltas.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Broken> {
        let mut left = count as u64;
        while left > 0 {
            if self.zeros > 0 {
                let run = self.zeros.min(left);
                self.zeros -= run;
                left -= run;
            } else if self.varint()? == 0 {
                self.zeros = self.varint()?.saturating_add(1);
            } else {
                left -= 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Broken> {
        match self.bytes {
            [one, rest @ ..] if *one < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(*one))
            }
            [low, high, rest @ ..] if *high < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(*low & 0x7f) | u64::from(*high) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for (place, byte) in self.bytes.iter().take(10).enumerate() {
            let bits = u64::from(*byte & 0x7f);
            // The tenth byte has room for one bit.
            if place == 9 && *byte > 1 {
                return Err(Broken);
            }
            value |= bits << (7 * place);
            if *byte < 0x80 {
                self.bytes = self.bytes.get(place + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Broken)
    }
}

/// Writes deltas.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeltaWriter {
    bytes: Vec<u8>,
    zeros: u64,
}

impl DeltaWriter {
    pub(crate) fn push(&mut self, delta: i64) {
        if delta == 0 {
            self.zeros += 1;
            return;
        }
        self.end_run();
        write_varint(&mut self.bytes, delta as u64);
    }

    fn end_run(&mut self) {
        if self.zeros > 0 {
            self.bytes.push(0);
            write_varint(&mut self.bytes, self.zeros - 1);
            self.zeros = 0;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_run();
        self.bytes
    }
}

fn write_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn written(columns: &[Vec<i64>]) -> Vec<u8> {
        let mut writer = DeltaWriter::default();
        columns.iter().flatten().for_each(|delta| writer.push(*delta));
        writer.finish()
    }

    #[test]
    fn a_run_of_zeros_goes_on_into_the_next_metrics() {
        let bytes = written(&[vec![1, 0, 0], vec![0, 0, 0], vec![0, 0, -1]]);
        assert_eq!(bytes[..3], [1, 0, 6]);
        let mut deltas = Deltas::new(&bytes);
        let mut out = [0; 4];
        deltas.column(10, &mut out).unwrap();
        assert_eq!(out, [10, 11, 11, 11]);
        deltas.skip(3).unwrap();
        deltas.column(20, &mut out).unwrap();
        assert_eq!(out, [20, 20, 20, 19]);
        assert_eq!(deltas.column(0, &mut out), Err(Broken));
    }

    #[test]
    fn values_wrap_as_the_recorder_lets_them() {
        let mut out = [0; 2];
        let bytes = written(&[vec![i64::MIN]]);
        Deltas::new(&bytes).column(i64::MIN, &mut out).unwrap();
        assert_eq!(out, [i64::MIN, 0]);
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        let mut long = vec![0xff; 9];
        long.push(2);
        assert_eq!(Deltas::new(&long).skip(1), Err(Broken));
        assert_eq!(Deltas::new(&[0x80; 20]).skip(1), Err(Broken));
        assert_eq!(Deltas::new(&[0xff]).skip(1), Err(Broken));
    }

    proptest! {
        #[test]
        fn deltas_come_back(columns in proptest::collection::vec(
            proptest::collection::vec(prop_oneof![Just(0i64), -3..3i64, any::<i64>()], 5), 0..20)) {
            let bytes = written(&columns);
            let (mut reader, mut skipper) = (Deltas::new(&bytes), Deltas::new(&bytes));
            for column in &columns {
                let mut out = [0; 6];
                reader.column(0, &mut out).unwrap();
                let mut sum = 0i64;
                let sums: Vec<i64> = column.iter().map(|delta| { sum = sum.wrapping_add(*delta); sum }).collect();
                prop_assert_eq!(&out[1..], &sums[..]);
                skipper.skip(5).unwrap();
                prop_assert_eq!((reader.bytes, reader.zeros), (skipper.bytes, skipper.zeros));
            }
            prop_assert!(reader.bytes.is_empty());
        }
    }
}
