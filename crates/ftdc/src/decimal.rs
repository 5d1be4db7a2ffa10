//! Decimal numbers as integers. mongod has none in what it records today, but its recorder would take them.

/// The integer nearest to a decimal128 (ties to even), held within the range of an integer; not a number is 0.
/// Layout: IEEE 754-2008, section 3.5.2, binary encoding of the significand.
pub(crate) fn to_i64(bits: u128) -> i64 {
    let negative = bits >> 127 == 1;
    let bound = if negative { i64::MIN } else { i64::MAX };
    let top = (bits >> 122) as u8 & 0x1f;
    if top == 0b11111 {
        return 0;
    }
    if top == 0b11110 {
        return bound;
    }
    // Where the first two bits are set, the significand would be larger than 34 digits: by the standard it is 0.
    if top >> 3 == 0b11 {
        return 0;
    }
    let exponent = ((bits >> 113) & 0x3fff) as i32 - 6176;
    let significand = bits & ((1 << 113) - 1);
    let magnitude = scaled(significand, exponent);
    let Some(magnitude) = magnitude.and_then(|magnitude| i128::try_from(magnitude).ok()) else { return bound };
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).unwrap_or(bound)
}

/// None where it is too large for 128 bits.
fn scaled(significand: u128, exponent: i32) -> Option<u128> {
    if significand == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        return 10u128.checked_pow(exponent.unsigned_abs())?.checked_mul(significand);
    }
    // 113 bits are less than 10^35: divided by more than that, less than a half is left.
    let Some(divisor) = 10u128.checked_pow(exponent.unsigned_abs()) else { return Some(0) };
    let (whole, rest) = (significand / divisor, significand % divisor);
    let up = match rest.cmp(&(divisor / 2)) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => whole % 2 == 1,
        std::cmp::Ordering::Greater => true,
    };
    Some(whole + u128::from(up))
}

#[cfg(test)]
mod tests {
    use super::to_i64;

    fn decimal(negative: bool, significand: u128, exponent: i32) -> u128 {
        (u128::from(negative) << 127) | (((exponent + 6176) as u128) << 113) | significand
    }

    #[test]
    fn decimals_are_rounded_and_held() {
        assert_eq!(to_i64(decimal(false, 11, 0)), 11);
        assert_eq!(to_i64(decimal(true, 12, 2)), -1200);
        assert_eq!([to_i64(decimal(false, 25, -1)), to_i64(decimal(false, 35, -1))], [2, 4]);
        assert_eq!(to_i64(decimal(false, 26, -1)), 3);
        assert_eq!(to_i64(decimal(true, 1, 6000)), i64::MIN);
        assert_eq!(to_i64(decimal(false, 1, -6000)), 0);
        assert_eq!([to_i64(0b11110 << 122), to_i64(0b11111 << 122), to_i64(0b11000 << 122)], [i64::MAX, 0, 0]);
    }
}
