//! Numbers as Java reads them from a property: `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`.

/// What begins each run of ten decimal digits of the basic plane, which is where `Integer.parseInt`
/// looks for digits (`Character.digit`).
const ZEROS: [u16; 37] = [
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80,
    0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0,
    0xFF10,
];

/// `Integer.valueOf`.
pub(super) fn int(text: &[u8]) -> Option<i32> {
    long(text).and_then(|value| i32::try_from(value).ok())
}

/// `Long.valueOf`: an optional sign and digits of any script; no blanks.
pub(super) fn long(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    // Downwards, where there is room for the smallest number.
    let mut value: i64 = 0;
    if digits.is_ascii() {
        for digit in digits {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
        }
    } else {
        for digit in std::str::from_utf8(digits).ok()?.chars() {
            value = value.checked_mul(10)?.checked_sub(i64::from(decimal_digit(digit)?))?;
        }
    }
    if negative { Some(value) } else { value.checked_neg() }
}

fn decimal_digit(digit: char) -> Option<u16> {
    let unit = u16::try_from(u32::from(digit)).ok()?;
    let run = ZEROS.partition_point(|zero| *zero <= unit).checked_sub(1)?;
    Some(unit - ZEROS[run]).filter(|digit| *digit < 10)
}

/// `Double.valueOf`: blanks around it, a trailing `d` or `f`, `NaN`, `Infinity` and hexadecimal floats
/// are allowed.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    // `String.trim` takes everything up to a blank for one.
    let start = text.iter().position(|byte| *byte > b' ')?;
    let end = text.iter().rposition(|byte| *byte > b' ')?;
    let text = std::str::from_utf8(&text[start..=end]).ok()?;
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = match digits {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        _ => {
            let digits = digits.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(digits);
            match digits.as_bytes() {
                [b'0', b'x' | b'X', hexadecimal @ ..] => hexadecimal_float(hexadecimal)?,
                // Rust also reads a second sign and names, which Java does not.
                [b'0'..=b'9' | b'.', ..] => digits.parse().ok()?,
                _ => return None,
            }
        }
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// The part of a hexadecimal float behind `0x`: `1.8p3`. The exponent is required.
fn hexadecimal_float(text: &[u8]) -> Option<f64> {
    let p = text.iter().position(|byte| matches!(byte, b'p' | b'P'))?;
    let (digits, exponent) = (&text[..p], &text[p + 1..]);
    let mut significand: u64 = 0;
    // Whether digits that had no room were not zero; they decide a tie.
    let mut is_inexact = false;
    let mut scale: i64 = 0;
    let (mut digit_count, mut point) = (0, false);
    for byte in digits {
        if *byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        digit_count += 1;
        let has_room = significand >> 60 == 0;
        if has_room {
            significand = (significand << 4) | digit;
        } else {
            is_inexact |= digit != 0;
        }
        // A digit without room counts fourfold unless it stands behind the point.
        scale += 4 * (i64::from(!has_room) - i64::from(point));
    }
    let (sign, exponent_digits) = match exponent {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digit_count == 0
        || exponent_digits.is_empty()
        || !exponent_digits.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    // Beyond this the result is zero or infinite whatever else there is: a text has less digits.
    let exponent = long(exponent_digits).unwrap_or(i64::MAX).min(1 << 40);
    Some(scaled(significand, is_inexact, scale + sign * exponent))
}

/// `significand * 2^scale`, rounded to even once. `is_inexact` says that a bit is set below.
fn scaled(significand: u64, is_inexact: bool, scale: i64) -> f64 {
    if significand == 0 {
        return 0.0;
    }
    // With the highest bit set, so that the value lies in [2^top, 2^(top + 1)).
    let shift = significand.leading_zeros();
    let bits = significand << shift;
    let top = scale - i64::from(shift) + 63;
    if top > 1023 {
        return f64::INFINITY;
    }
    // How many of the 64 bits do not fit: 11, and more for numbers below the normal ones.
    let dropped = 11 + (-1022 - top).max(0);
    if dropped > 64 {
        return 0.0;
    }
    let (kept, rest, half) = match dropped {
        64 => (0, bits, 1 << 63),
        _ => (bits >> dropped, bits & ((1 << dropped) - 1), 1 << (dropped - 1)),
    };
    let rounds_up = rest > half || (rest == half && (is_inexact || kept & 1 == 1));
    let kept = kept + u64::from(rounds_up);
    // A carry out of the kept bits is a step of the exponent, which stands above them.
    let exponent = (top + 1022).max(0) as u64;
    f64::from_bits((exponent << 52) + kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_javas() {
        for (text, value) in [
            ("5", Some(5)),
            ("+5", Some(5)),
            ("-007", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("\u{661}\u{662}", Some(12)),
            ("\u{ff11}2", Some(12)),
            ("", None),
            ("+", None),
            ("-", None),
            (" 5", None),
            ("5 ", None),
            ("5.0", None),
            ("0x5", None),
            ("5L", None),
            ("--5", None),
            ("\u{1d7ce}", None),
            ("5/", None),
            ("5:", None),
        ] {
            assert_eq!(long(text.as_bytes()), value, "{text}");
        }
        assert_eq!(int(b"2147483648"), None);
        assert_eq!(int(b"-2147483648"), Some(i32::MIN));
        assert_eq!(int(b"\xff"), None);
        assert!(ZEROS.is_sorted());
    }

    #[test]
    fn doubles_are_javas() {
        for (text, value) in [
            ("5", Some(5.0)),
            (" 5.5\t", Some(5.5)),
            ("5.", Some(5.0)),
            (".5", Some(0.5)),
            ("-.5e-3", Some(-0.5e-3)),
            ("1e400", Some(f64::INFINITY)),
            ("5d", Some(5.0)),
            ("5F", Some(5.0)),
            ("Infinity", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("0x1p0", Some(1.0)),
            ("-0X1.8P3", Some(-12.0)),
            ("0x.8p1d", Some(1.0)),
            ("0x1p-1074", Some(f64::from_bits(1))),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(f64::from_bits(1))),
            ("0x1.fffffffffffff8p1023", Some(f64::INFINITY)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x0.0000000000001p-1022", Some(f64::from_bits(1))),
            ("0x123456789abcdef01p0", Some(20_988_295_479_420_645_121.0)),
            ("0x0p99999999999999999999", Some(0.0)),
            ("0x1p99999999999999999999", Some(f64::INFINITY)),
            ("0x1p-99999999999999999999", Some(0.0)),
            ("", None),
            ("  ", None),
            ("infinity", None),
            ("inf", None),
            ("nan", None),
            ("e5", None),
            (".", None),
            ("1e", None),
            ("--1", None),
            ("5dd", None),
            ("5 5", None),
            ("0x1", None),
            ("0xp1", None),
            ("0x1p", None),
            ("0x1.2.3p1", None),
            ("\u{661}", None),
        ] {
            assert_eq!(double(text.as_bytes()), value, "{text}");
        }
        assert!(double(b"NaN").is_some_and(f64::is_nan));
        assert!(double(b"-NaN").is_some_and(f64::is_nan));
        assert_eq!(double(b"-0").map(f64::to_bits), Some((-0.0_f64).to_bits()));
    }

    proptest::proptest! {
        #[test]
        fn hexadecimal_floats_come_back(bits in 0..f64::INFINITY.to_bits()) {
            let exponent = (bits >> 52) as i64;
            let fraction = bits & ((1 << 52) - 1);
            let text = match exponent {
                0 => format!("0x0.{fraction:013x}p-1022"),
                _ => format!("0x1.{fraction:013x}p{}", exponent - 1023),
            };
            proptest::prop_assert_eq!(double(text.as_bytes()).map(f64::to_bits), Some(bits));
        }
    }
}
