//! The signals that stop containers: the API writes `SIGRTMIN+1` for CRI's `SIGRTMINPLUS1`, and all others alike.

use cri::runtime::Signal;

/// CRI's signal of an API's name; none for a name that no signal has.
pub(super) fn to_cri(name: &str) -> Option<Signal> {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    Signal::from_str_name(&name).filter(|signal| *signal != Signal::RuntimeDefault)
}

/// The API's name of CRI's signal; none where the runtime does not tell.
pub(super) fn of_cri(signal: Signal) -> Option<String> {
    (signal != Signal::RuntimeDefault)
        .then(|| signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_in_both_worlds() {
        let check = |name: &str, signal: Option<Signal>| {
            assert_eq!(to_cri(name), signal, "{name}");
            if let Some(signal) = signal {
                assert_eq!(of_cri(signal).as_deref(), Some(name));
            }
        };
        check("SIGTERM", Some(Signal::Sigterm));
        check("SIGUSR1", Some(Signal::Sigusr1));
        check("SIGRTMIN", Some(Signal::Sigrtmin));
        check("SIGRTMIN+15", Some(Signal::Sigrtminplus15));
        check("SIGRTMAX-14", Some(Signal::Sigrtmaxminus14));
        check("RUNTIME_DEFAULT", None);
        check("TERM", None);
        assert_eq!(of_cri(Signal::RuntimeDefault), None);
        // Each of CRI's 65 signals comes back.
        let all = (1..=65).map(|number| Signal::try_from(number).unwrap());
        assert_eq!(
            all.filter(|signal| of_cri(*signal).and_then(|name| to_cri(&name)) == Some(*signal)).count(),
            65
        );
    }
}
