//! Slices of systemd, which owns the hierarchy of cgroups of a machine that it has started: whoever wants a cgroup there
//! asks it for a unit, and what was not set by it is lost when it reads its configuration anew.
//!
//! It is asked where a cgroup is wanted: an answer takes a thousandth of a second, as writing the files does. Where it does
//! not answer, the other tasks go on.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use parking_lot::Mutex;

use crate::dbus::address::{Address, of_system};
use crate::dbus::message::{self, Argument, Call, FIXED, Kind, Malformed, Message, Property, Value};
use crate::pods::resources::{PodCgroup, weight};
use crate::work::in_place;

/// How long an answer and the end of a job are waited for; upstream's.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most messages that are passed over before an answer: others may send signals.
const OTHERS: usize = 10_000;
/// The longest message that is passed over.
const LONGEST: usize = 1 << 20;
const SYSTEMD: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const BUS: &str = "org.freedesktop.DBus";
const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const UNKNOWN: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// No limit, as properties have it.
const INFINITY: u64 = u64::MAX;

/// Why systemd does not do it.
#[derive(Debug, thiserror::Error)]
enum SliceError {
    #[error("systemd cannot be asked: {0}")]
    Io(#[from] io::Error),
    #[error("the system bus: {0}")]
    Malformed(#[from] Malformed),
    #[error("systemd: {name}: {text}")]
    Answer { name: String, text: String },
    #[error("systemd: the job of {unit} ended as {result}")]
    Job { unit: String, result: String },
}

impl From<SliceError> for io::Error {
    fn from(error: SliceError) -> Self {
        match error {
            SliceError::Io(error) => error,
            other => Self::other(other),
        }
    }
}

/// A way to systemd, which is found anew after a failure.
#[derive(Debug, Default)]
pub(crate) struct Slices(Mutex<Option<Bus>>);

impl Slices {
    /// Starts a slice, if it is not there.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn start(&self, unit: &str) -> io::Result<()> {
        let description = format!("libcontainer container {}", unit.trim_end_matches(".slice"));
        let above = above(unit);
        let wants = above.as_deref().into_iter().collect::<Vec<_>>();
        let mut properties: Vec<Property<'_>> = vec![("Description", Value::Text(&description))];
        if !wants.is_empty() {
            properties.push(("Wants", Value::Texts(&wants)));
        }
        for name in ["MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting"] {
            properties.push((name, Value::Bool(true)));
        }
        properties.push(("DefaultDependencies", Value::Bool(false)));
        let arguments = [
            Argument::Text(unit),
            Argument::Text("replace"),
            Argument::Properties(&properties),
            Argument::NoUnits,
        ];
        self.with(|bus| match bus.job(unit, "StartTransientUnit", &arguments) {
            Err(SliceError::Answer { name, .. }) if name == EXISTS => Ok(()),
            other => other,
        })
    }

    /// Sets limits of a slice until the machine goes down.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn set(&self, unit: &str, properties: &[Property<'_>]) -> io::Result<()> {
        let arguments = [Argument::Text(unit), Argument::Bool(true), Argument::Properties(properties)];
        self.with(|bus| bus.of_manager("SetUnitProperties", &arguments).map(drop))
    }

    /// Ends a slice with all that is in it; one that is not there has ended.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub(crate) fn stop(&self, unit: &str) -> io::Result<()> {
        let gone = |result: Result<(), SliceError>| match result {
            Err(SliceError::Answer { name, .. }) if name == UNKNOWN => Ok(()),
            other => other,
        };
        let arguments = [Argument::Text(unit), Argument::Text("replace")];
        self.with(|bus| {
            gone(bus.job(unit, "StopUnit", &arguments))?;
            // One that failed would be remembered.
            gone(bus.of_manager("ResetFailedUnit", &arguments[..1]).map(drop))
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Bus) -> Result<T, SliceError>) -> io::Result<T> {
        in_place(|| {
            let mut kept = self.0.lock();
            let bus = match &mut *kept {
                Some(bus) => bus,
                none => none.insert(Bus::connect()?),
            };
            let result = ask(bus);
            if matches!(result, Err(SliceError::Io(_) | SliceError::Malformed(_))) {
                *kept = None;
            }
            Ok(result?)
        })
    }
}

/// The slice that a slice is in, by its name.
fn above(unit: &str) -> Option<String> {
    let (above, _) = unit.strip_suffix(".slice")?.rsplit_once('-')?;
    Some(format!("{above}.slice"))
}

/// The properties of a slice for what its Pods may have together; `unified` is the machine's hierarchy.
pub(crate) fn properties(want: &PodCgroup, default_period: i64, unified: bool) -> Vec<Property<'static>> {
    let number = |value: i64| u64::try_from(value).unwrap_or(INFINITY);
    let memory = want.memory.map_or(INFINITY, number);
    let mut all = Vec::new();
    let mut add = |name: &'static str, value: u64| all.push((name, Value::Number(value)));
    if unified {
        add("CPUWeight", weight(want.shares));
        add("MemoryMax", memory);
        for (file, value) in &want.unified {
            match *file {
                "memory.min" => add("MemoryMin", number(*value)),
                "memory.low" => add("MemoryLow", number(*value)),
                "memory.high" => add("MemoryHigh", number(*value)),
                // systemd has no word for the others, and leaves them alone.
                _ => {}
            }
        }
    } else {
        add("CPUShares", want.shares);
        add("MemoryLimit", memory);
    }
    let period = if want.period > 0 { want.period } else { default_period };
    add("CPUQuotaPerSecUSec", want.quota.map_or(INFINITY, |quota| per_second(quota, period)));
    add("CPUQuotaPeriodUSec", number(period));
    if let Some(pids) = want.pids {
        add("TasksMax", number(pids));
    }
    all
}

/// A quota as microseconds a second: systemd takes whole hundredths, and what is over counts as one more, as in runc.
fn per_second(quota: i64, period: i64) -> u64 {
    let (Ok(quota), Ok(period)) = (u64::try_from(quota), u64::try_from(period)) else { return INFINITY };
    if quota == 0 || period == 0 {
        return INFINITY;
    }
    (quota.saturating_mul(1_000_000) / period).next_multiple_of(10_000)
}

/// A connection to the system's bus, on which nobody else waits.
#[derive(Debug)]
struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

impl Bus {
    fn connect() -> Result<Self, SliceError> {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for address in of_system() {
            let stream = match address {
                Address::Path(path) => UnixStream::connect(path),
                Address::Abstract(name) => {
                    SocketAddr::from_abstract_name(name).and_then(|at| UnixStream::connect_addr(&at))
                }
            };
            match stream {
                Ok(stream) => return Self::over(stream),
                Err(why) => error = why,
            }
        }
        Err(error.into())
    }

    /// Says hello, and asks for the ends of jobs.
    fn over(stream: UnixStream) -> Result<Self, SliceError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut bus = Self { stream: BufReader::new(stream), serial: 0 };
        let uid = rustix::process::geteuid().as_raw().to_string();
        let uid = uid.bytes().fold(String::new(), |mut hex, digit| {
            let _ = write!(hex, "{digit:02x}");
            hex
        });
        bus.stream.get_mut().write_all(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
        let mut line = String::new();
        (&mut bus.stream).take(4096).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, line.trim_end().to_owned()).into());
        }
        bus.stream.get_mut().write_all(b"BEGIN\r\n")?;
        bus.of_bus("Hello", &[])?;
        let rule = format!(
            "type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved',path='{PATH}'"
        );
        bus.of_bus("AddMatch", &[Argument::Text(&rule)])?;
        bus.of_manager("Subscribe", &[])?;
        Ok(bus)
    }

    fn of_bus(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, SliceError> {
        let path = "/org/freedesktop/DBus";
        self.call(&Call { destination: BUS, path, interface: BUS, member, arguments })
    }

    fn of_manager(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, SliceError> {
        self.call(&Call { destination: SYSTEMD, path: PATH, interface: MANAGER, member, arguments })
    }

    /// Calls a method that answers with a job, and waits for its end.
    fn job(&mut self, unit: &str, member: &str, arguments: &[Argument<'_>]) -> Result<(), SliceError> {
        let answer = self.of_manager(member, arguments)?;
        let job = answer.object().ok_or(Malformed::Format)?;
        for _ in 0..OTHERS {
            let Some(message) = self.message()? else { continue };
            // The bus writes who sent it: somebody else may send the same.
            let own = message.kind == Kind::Signal && message.sender == answer.sender;
            let ended = message.ended_job().filter(|_| own && message.member == "JobRemoved");
            if let Some((_, result)) = ended.filter(|(ended, _)| *ended == job) {
                let (unit, result) = (unit.to_owned(), result.to_owned());
                return if result == "done" { Ok(()) } else { Err(SliceError::Job { unit, result }) };
            }
        }
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Message, SliceError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        self.stream.get_mut().write_all(&message::encode(self.serial, call))?;
        for _ in 0..OTHERS {
            let Some(message) = self.message()? else { continue };
            if message.answers != Some(self.serial) {
                continue;
            }
            match message.kind {
                Kind::Return => return Ok(message),
                Kind::Error => {
                    let text = message.text().unwrap_or_default().to_owned();
                    return Err(SliceError::Answer { name: message.error, text });
                }
                _ => {}
            }
        }
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    /// Reads a message; none if it is longer than any that is asked for.
    fn message(&mut self) -> Result<Option<Message>, SliceError> {
        let mut fixed = [0; FIXED];
        self.stream.read_exact(&mut fixed)?;
        let length = match message::length(&fixed) {
            Err(Malformed::TooLong(length)) if length <= LONGEST => {
                let rest = (length - FIXED) as u64;
                io::copy(&mut (&mut self.stream).take(rest), &mut io::sink())?;
                return Ok(None);
            }
            other => other?,
        };
        let mut all = fixed.to_vec();
        all.resize(length, 0);
        self.stream.read_exact(&mut all[FIXED..])?;
        Ok(Some(message::decode(&all)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_in_slices() {
        let check = |unit: &str, expected: Option<&str>| assert_eq!(above(unit).as_deref(), expected);
        check("kubepods.slice", None);
        check("kubepods-burstable-podx.slice", Some("kubepods-burstable.slice"));
        check("kubepods-x.scope", None);
    }

    /// runc's own cases of its `addCPUQuota`.
    #[test]
    fn quotas_are_rounded_up() {
        let check = |quota: i64, period: i64, expected: u64| assert_eq!(per_second(quota, period), expected);
        check(500_000, 50_000, 10_000_000);
        check(499_000, 50_000, 9_980_000);
        check(300_000, 150_000, 2_000_000);
        check(25_000, 100_000, 250_000);
        check(12_345, 100_000, 130_000);
        check(-1, 100_000, INFINITY);
        check(0, 100_000, INFINITY);
    }

    #[test]
    fn limits_are_properties() {
        let want = PodCgroup {
            shares: 1024,
            quota: Some(50_000),
            memory: Some(1 << 20),
            pids: Some(-1),
            unified: [("memory.min", 5), ("memory.oom.group", 1)].into(),
            ..PodCgroup::default()
        };
        let shown = |unified: bool| -> Vec<String> {
            let all = properties(&want, 100_000, unified);
            all.iter()
                .map(|(name, value)| match value {
                    Value::Number(INFINITY) => format!("{name}=infinity"),
                    Value::Number(number) => format!("{name}={number}"),
                    other => format!("{name}={other:?}"),
                })
                .collect()
        };
        let common = ["CPUQuotaPerSecUSec=500000", "CPUQuotaPeriodUSec=100000", "TasksMax=infinity"];
        let weight = format!("CPUWeight={}", weight(1024));
        let v2 = [weight.as_str(), "MemoryMax=1048576", "MemoryMin=5"];
        assert_eq!(shown(true), [&v2[..], &common].concat());
        assert_eq!(shown(false), [&["CPUShares=1024", "MemoryLimit=1048576"][..], &common].concat());
    }
}
