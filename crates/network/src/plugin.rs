//! The plugin: what a runtime executes for each call. It passes the call to the agent's socket and prints the answer.
//!
//! It is this program under another name, and must start fast: it runs before flags, logs and threads.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cni::{Call, CniError, Outcome, code, version_result};
use crate::loopback;

/// The longest configuration and the longest answer, in bytes.
pub(crate) const LONGEST: u64 = 4 << 20;
/// The time for which an agent that is away is waited for. Runtimes try again themselves.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for which an answer is waited for.
pub(crate) const ANSWER: Duration = Duration::from_mins(1);

/// Runs the plugin if that is what this process was started for.
pub fn run() -> Option<ExitCode> {
    let command = std::env::var_os("CNI_COMMAND");
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let by_name = Path::new(&name).file_name().is_some_and(|n| n.as_bytes().starts_with(b"ferrokube-"));
    // A program that a plugin's environment was handed down to has arguments.
    if command.is_none() || !(by_name || arguments.next().is_none()) {
        return None;
    }
    let outcome = match read_config(&mut io::stdin().lock()) {
        Ok(config) => (version_of(&config), answer(config, &text)),
        Err(error) => ("1.0.0".to_owned(), Err(error)),
    };
    Some(print(outcome))
}

fn text(name: &str) -> String {
    std::env::var_os(name).as_deref().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}

fn print((version, outcome): (String, Result<Value, CniError>)) -> ExitCode {
    let (shown, code) = match outcome {
        Ok(Value::Null) => return ExitCode::SUCCESS,
        Ok(result) => (result, ExitCode::SUCCESS),
        Err(error) => {
            let mut shown = json!({ "cniVersion": version, "code": error.code, "msg": error.msg });
            if !error.details.is_empty() {
                shown["details"] = error.details.into();
            }
            (shown, ExitCode::FAILURE)
        }
    };
    match writeln!(io::stdout(), "{shown}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn read_config(from: &mut impl Read) -> Result<Value, CniError> {
    let mut text = Vec::new();
    from.take(LONGEST)
        .read_to_end(&mut text)
        .map_err(|error| CniError::because(code::IO, "the configuration cannot be read", error))?;
    serde_json::from_slice(&text)
        .map_err(|error| CniError::because(code::DECODING, "failed to decode the configuration", error))
}

fn version_of(config: &Value) -> String {
    config["cniVersion"].as_str().unwrap_or("0.1.0").to_owned()
}

fn answer(config: Value, environment: &dyn Fn(&str) -> String) -> Result<Value, CniError> {
    let command = environment("CNI_COMMAND");
    if command == "VERSION" {
        return Ok(version_result(&version_of(&config)));
    }
    let call = Call {
        command,
        container: environment("CNI_CONTAINERID"),
        namespace: environment("CNI_NETNS"),
        interface: environment("CNI_IFNAME"),
        arguments: environment("CNI_ARGS"),
        config,
    };
    if call.config["type"] == loopback::NAME {
        // It concerns nobody but the container, so the agent need not know.
        return loopback::answer(&call);
    }
    let socket = call.config["socket"].as_str().ok_or_else(|| {
        CniError::new(code::CONFIGURATION, "the configuration does not name the agent's socket")
    })?;
    match pass(Path::new(socket), &call, PATIENCE) {
        Ok(Outcome::Done(result)) => Ok(result),
        Ok(Outcome::Failed(error)) => Err(error),
        Err(error) => {
            let msg = format!("ferrokube does not answer at {socket}; is it running?");
            Err(CniError::because(code::LATER, msg, error))
        }
    }
}

/// Passes a call to the agent. An agent that is away, or that goes away before it answers, is asked again for a time:
/// each call may be made twice.
pub(crate) fn pass(socket: &Path, call: &Call, patience: Duration) -> io::Result<Outcome> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let error = match ask(socket, call) {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        if started.elapsed() + pause > patience || error.kind() == io::ErrorKind::TimedOut {
            return Err(error);
        }
        // The plugin is a process of its own that has nothing else to do; a socket that is not there tells nobody when
        // it is.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn ask(socket: &Path, call: &Call) -> io::Result<Outcome> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(&serde_json::to_vec(call)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    // An agent that dies leaves an answer that is no JSON.
    Ok(serde_json::from_slice(&answer)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_needs_no_agent() {
        let of = |command: &'static str| {
            move |name: &str| if name == "CNI_COMMAND" { command.into() } else { String::new() }
        };
        let version = answer(json!({"cniVersion": "0.4.0"}), &of("VERSION")).unwrap();
        assert_eq!(version["cniVersion"], "0.4.0");
        let error = answer(json!({"cniVersion": "1.0.0"}), &of("ADD")).unwrap_err();
        assert_eq!(error.code, code::CONFIGURATION);
        let error = read_config(&mut &b"{"[..]).unwrap_err();
        assert_eq!(error.code, code::DECODING);
    }

    #[test]
    fn an_agent_that_goes_away_is_asked_again_and_one_that_stays_away_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let call = Call { command: "DEL".into(), ..Call::default() };
        assert!(pass(&socket, &call, Duration::from_millis(50)).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let listener = UnixListener::bind(&socket).unwrap();
                drop(listener.accept().unwrap());
                let (mut second, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                second.read_to_end(&mut asked).unwrap();
                assert_eq!(serde_json::from_slice::<Call>(&asked).unwrap().command, "DEL");
                second.write_all(&serde_json::to_vec(&Outcome::Done(Value::Null)).unwrap()).unwrap();
            });
            assert_eq!(pass(&socket, &call, PATIENCE).unwrap(), Outcome::Done(Value::Null));
        });
    }
}
