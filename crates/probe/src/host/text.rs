//! Small parsers that the sources share. None of them panics on any text.

/// Lines of `key value`, `key: value` or `key: value kB`, with values in the unit they are written in.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let key = words.next()?;
        Some((key.strip_suffix(':').unwrap_or(key), words.next()?.parse().ok()?))
    })
}

/// The value of one key of [`pairs`].
pub(super) fn pair(text: &str, key: &str) -> Option<u64> {
    pairs(text).find(|(have, _)| *have == key).map(|(_, value)| value)
}

/// The number after `key=` among words.
pub(super) fn assigned(words: &str, key: &str) -> Option<u64> {
    let value = words.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value?.parse().ok()
}

/// Whether a text is a device number as the kernel writes it: `MAJ:MIN`.
pub(super) fn is_device_number(text: &str) -> bool {
    let number = |part: &str| part.parse::<u32>().is_ok() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(':').is_some_and(|(major, minor)| number(major) && number(minor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pairs_of_every_spelling_are_read() {
        let text =
            "nr_dirty 12\nMemTotal:    24684092 kB\n\nnonsense\nnegative -1\nBdiDirtied:            6418160 kB\n";
        let list: Vec<_> = pairs(text).collect();
        assert_eq!(list, [("nr_dirty", 12), ("MemTotal", 24_684_092), ("BdiDirtied", 6_418_160)]);
        assert_eq!(pair(text, "nr_dirt"), None);
    }

    #[test]
    fn assignments_need_the_whole_key() {
        assert_eq!(assigned("8:0 rbps=1 wbps=max wiops=120", "wiops"), Some(120));
        assert_eq!(assigned("8:0 rbps=1 wbps=max wiops=120", "wbps"), None);
        assert_eq!(assigned("8:0 rbps=1", "bps"), None);
    }

    #[test]
    fn device_numbers_are_told_from_other_words() {
        assert!(is_device_number("254:0"));
        for not in ["Total", "254", "a:0", "8:", "../1:2", "8:0:1", "+8:1"] {
            assert!(!is_device_number(not), "{not}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in ".*", key in ".{0,8}") {
            pairs(&text).count();
            pair(&text, &key);
            assigned(&text, &key);
            is_device_number(&text);
        }
    }
}
