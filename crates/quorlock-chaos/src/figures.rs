//! Figures as the terminal and the page show them.

/// Formats a duration with three digits, such as `870 µs`, `3.42 ms` or `12.4 s`.
pub(crate) fn span(micros: u64) -> String {
    match micros {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", three_digits(micros, 1_000)),
        _ => format!("{} s", three_digits(micros, 1_000_000)),
    }
}

/// Formats a share in percent, rounded down: only all of them are 100%.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if part == whole {
        return "100%".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

/// Formats a number with thousands separators: `12,345`.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn three_digits(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    match whole {
        0..10 => format!("{whole}.{:02}", rest * 100 / unit),
        10..100 => format!("{whole}.{}", rest * 10 / unit),
        _ => number(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_up() {
        assert_eq!(share(999_999, 1_000_000), "99.99%");
        assert_eq!(share(1_000_000, 1_000_000), "100%");
        assert_eq!(share(0, 3), "0.00%");
    }

    #[test]
    fn spans_have_three_digits() {
        let spans = [870, 3_421, 87_100, 412_999, 1_240_000, 61_500_000, 3_600_000_000].map(span);
        assert_eq!(spans, ["870 µs", "3.42 ms", "87.1 ms", "412 ms", "1.24 s", "61.5 s", "3,600 s"]);
    }
}
