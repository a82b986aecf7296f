use std::fmt;
use std::str::FromStr;

/// A Kubernetes quantity in fixed point: an exact number of billionths.
///
/// The API server rounds what is finer than a billionth up; so does [`FromStr`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    nanos: i128,
}

const NANOS: i128 = 1_000_000_000;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a quantity; expected a number with a suffix such as m, k, M, G, Ki, Mi, Gi or e3")]
pub struct QuantityError(String);

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A whole number of units (cores, bytes).
    #[must_use]
    pub const fn whole(units: u64) -> Self {
        Self { nanos: units as i128 * NANOS }
    }

    /// The largest whole number of units not above it; 0 for negative quantities.
    #[must_use]
    pub fn floor(self) -> u64 {
        u64::try_from(self.nanos.max(0) / NANOS).unwrap_or(u64::MAX)
    }

    /// Whether it is a whole number of units.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// The sum, or the largest quantity there is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }

    /// The difference, negative if `other` is larger.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos) }
    }

    /// The product with a whole number.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        Self { nanos: self.nanos.saturating_mul(factor.into()) }
    }

    /// How many times `part` fits into it whole; `None` when `part` is zero or negative.
    #[must_use]
    pub fn fits(self, part: Self) -> Option<u64> {
        (part.nanos > 0).then(|| u64::try_from(self.nanos.max(0) / part.nanos).unwrap_or(u64::MAX))
    }
}

/// What a suffix multiplies by: a power of ten or of two.
enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale(suffix: &str) -> Option<Scale> {
    Some(match suffix {
        "n" => Scale::Ten(-9),
        "u" => Scale::Ten(-6),
        "m" => Scale::Ten(-3),
        "" => Scale::Ten(0),
        "k" => Scale::Ten(3),
        "M" => Scale::Ten(6),
        "G" => Scale::Ten(9),
        "T" => Scale::Ten(12),
        "P" => Scale::Ten(15),
        "E" => Scale::Ten(18),
        "Ki" => Scale::Two(10),
        "Mi" => Scale::Two(20),
        "Gi" => Scale::Two(30),
        "Ti" => Scale::Two(40),
        "Pi" => Scale::Two(50),
        "Ei" => Scale::Two(60),
        exponent => Scale::Ten(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if integer.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let digits = format!("{integer}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        scale(suffix)?;
        return Some(Quantity::ZERO);
    }
    // value = digits * 10^ten * 2^two, in billionths.
    let (ten, two) = match scale(suffix)? {
        Scale::Ten(exponent) => (exponent, 0),
        Scale::Two(exponent) => (0, exponent),
    };
    let ten = ten.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.parse::<i128>().ok()?.checked_mul(1_i128 << two)?;
    let nanos = match u32::try_from(ten) {
        Ok(up) => scaled.checked_mul(10_i128.checked_pow(up)?)?,
        Err(_) => match 10_i128.checked_pow(ten.unsigned_abs()) {
            // Away from zero, as the API server does.
            Some(divisor) => scaled / divisor + i128::from(scaled % divisor != 0),
            None => 1,
        },
    };
    Some(Quantity { nanos: sign * nanos })
}

impl fmt::Display for Quantity {
    /// The shortest of the exact forms without a point: `4`, `500m`, `1536Mi`, `2G`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let units = self.nanos / NANOS;
        if self.is_whole() && units % 1024 == 0 {
            let suffixes = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            let power = (1..=6).rev().find(|&p| units % (1_i128 << (10 * p)) == 0).unwrap_or(1);
            return write!(f, "{}{}", units >> (10 * power), suffixes[power - 1]);
        }
        let forms =
            [("E", 27), ("P", 24), ("T", 21), ("G", 18), ("M", 15), ("k", 12), ("", 9), ("m", 6), ("u", 3)];
        for (suffix, power) in forms {
            let one = 10_i128.pow(power);
            if self.nanos % one == 0 {
                return write!(f, "{}{suffix}", self.nanos / one);
            }
        }
        write!(f, "{}n", self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_that_kubernetes_writes_is_read_exactly() {
        let cases: [(&str, i128); 27] = [
            ("4", 4 * NANOS),
            ("500m", NANOS / 2),
            ("0.5", NANOS / 2),
            (".5", NANOS / 2),
            ("5.", 5 * NANOS),
            ("+1.5", NANOS * 3 / 2),
            ("-2", -2 * NANOS),
            ("3n", 3),
            ("3u", 3_000),
            ("1e3", 1_000 * NANOS),
            ("1E3", 1_000 * NANOS),
            ("1E", 1_000_000_000_000_000_000 * NANOS),
            ("25e-1", NANOS * 5 / 2),
            ("2k", 2_000 * NANOS),
            ("2M", 2_000_000 * NANOS),
            ("2G", 2_000_000_000 * NANOS),
            ("2T", 2_000_000_000_000 * NANOS),
            ("2P", 2_000_000_000_000_000 * NANOS),
            ("1Ki", 1_024 * NANOS),
            ("1.5Gi", 1_610_612_736 * NANOS),
            ("512Mi", 536_870_912 * NANOS),
            ("1Ti", (1 << 40) * NANOS),
            ("1Pi", (1 << 50) * NANOS),
            ("1Ei", (1 << 60) * NANOS),
            ("9223372036854775807", 9_223_372_036_854_775_807 * NANOS),
            ("0.1n", 1),
            ("1e-400", 1),
        ];
        for (text, nanos) in cases {
            assert_eq!(text.parse(), Ok(Quantity { nanos }), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_the_text() {
        for text in
            ["", ".", "m", "1.2.3", "1 Gi", "1gi", "1K", "1e", "1e1.5", "0x10", "NaN", "1mi", "٣", "--1"]
        {
            let error = text.parse::<Quantity>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{text}\" is not a quantity")), "{error}");
        }
        assert!("1e40".parse::<Quantity>().is_err(), "beyond what can be held");
    }

    #[test]
    fn whole_units_are_rounded_down_and_never_below_zero() {
        let quantity = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(quantity("3999m").floor(), 3);
        assert_eq!(quantity("4").minus(quantity("4500m")).floor(), 0);
        assert_eq!(quantity("1Gi").fits(quantity("300Mi")), Some(3));
        assert_eq!(quantity("1Gi").fits(Quantity::ZERO), None);
        assert!(quantity("2000m").is_whole() && !quantity("2001m").is_whole());
    }

    proptest! {
        #[test]
        fn writing_and_reading_gives_the_same_quantity(nanos in -(1_i128 << 100)..(1_i128 << 100), shift in 0_u32..100) {
            let quantity = Quantity { nanos: nanos >> shift };
            prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
            let whole = Quantity { nanos: (nanos >> shift >> 30) * NANOS };
            prop_assert_eq!(whole.to_string().parse(), Ok(whole));
        }

        #[test]
        fn decimal_texts_mean_what_they_say(integer in 0_u64..1_000_000_000, fraction in 0_u32..1_000_000_000) {
            let text = format!("{integer}.{fraction:09}");
            let nanos = i128::from(integer) * NANOS + i128::from(fraction);
            prop_assert_eq!(text.parse(), Ok(Quantity { nanos }));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+]?[0-9.]{0,50}[a-zA-Z]{0,3}[-+0-9]{0,12}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
