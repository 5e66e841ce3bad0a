//! Signals by which containers are stopped.

use cri::runtime::Signal;

/// The signal that stops a container for which nobody chose one.
const TERM: i32 = 15;
/// The greatest real-time signal; the least is 34, as C libraries have it.
const RTMAX: i32 = 64;
const RTMIN: i32 = 34;

/// The names of the signals with a number below those of real time.
const NAMES: [(&str, i32); 34] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The number of a signal's name, with or without `SIG`, in any case; `RTMIN+1` and `RTMINPLUS1` are the same.
fn number(name: &str) -> Option<i32> {
    let upper = name.trim().to_ascii_uppercase().replace("PLUS", "+").replace("MINUS", "-");
    if let Ok(number) = upper.parse::<i32>() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let beside = |rest: &str, from: i32| match rest {
        "" => Some(from),
        other => Some(from + other.parse::<i32>().ok()?),
    };
    let real_time = if let Some(rest) = bare.strip_prefix("RTMIN") {
        beside(rest, RTMIN)
    } else if let Some(rest) = bare.strip_prefix("RTMAX") {
        beside(rest, RTMAX)
    } else {
        None
    };
    real_time
        .filter(|number| (RTMIN..=RTMAX).contains(number))
        .or_else(|| NAMES.iter().find(|(known, _)| *known == bare).map(|(_, number)| *number))
}

/// The number of CRI's signal; none for the runtime's default.
pub fn of_cri(signal: Signal) -> Option<i32> {
    if signal == Signal::RuntimeDefault { None } else { number(signal.as_str_name()) }
}

/// The signal of an image's configuration; the usual one if it names none, or one that is unknown.
pub fn of_image(text: Option<&str>) -> i32 {
    text.and_then(number).unwrap_or(TERM)
}

/// A signal as CRI has it.
pub fn to_cri(wanted: i32) -> Signal {
    (1..=65)
        .filter_map(|value| Signal::try_from(value).ok())
        .find(|signal| of_cri(*signal) == Some(wanted))
        .unwrap_or(Signal::Sigterm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let check = |text: Option<&str>, expected: i32| assert_eq!(of_image(text), expected, "{text:?}");
        check(None, 15);
        check(Some("SIGQUIT"), 3);
        check(Some("usr1"), 10);
        check(Some("9"), 9);
        check(Some("65"), 15);
        check(Some("SIGRTMIN+3"), 37);
        check(Some("SIGRTMAX-1"), 63);
        check(Some("RTMIN+99"), 15);
        check(Some("nonsense"), 15);
        assert_eq!(of_cri(Signal::RuntimeDefault), None);
        assert_eq!(of_cri(Signal::Sigrtminplus1), Some(35));
        assert_eq!(to_cri(3), Signal::Sigquit);
        for value in 1..=65 {
            let signal = Signal::try_from(value).unwrap();
            let number = of_cri(signal).unwrap_or_else(|| panic!("{signal:?}"));
            assert_eq!(of_cri(to_cri(number)), Some(number), "{signal:?}");
        }
    }
}
