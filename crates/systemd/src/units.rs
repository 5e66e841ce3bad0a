//! Units that hold cgroups: slices and scopes. systemd owns the hierarchy of cgroups of a machine that it has started: a
//! cgroup is a unit that it is asked for, and limits that were not set by it are lost when it reads its configuration
//! anew.
//!
//! A call waits in its caller's thread: an answer takes a thousandth of a second, as writing the files does. Each call has
//! a connection for itself, so that one that is answered late holds up no other, and ends in any case.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::net::RecvFlags;

use crate::address::{Address, of_system};
use crate::message::{self, Argument, Call, FIXED, Kind, Malformed, Message, Property, Value};

/// How long the answers to a call and the end of its job are waited for; upstream's.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most connections at once; who comes later waits for one.
const CONNECTIONS: usize = 16;
/// The most connections that are kept for the next calls.
const KEPT: usize = 4;
/// The most messages that are passed over before an answer: others may send signals.
const OTHERS: usize = 10_000;
/// The longest message that is passed over.
const LONGEST: usize = 1 << 20;
const SYSTEMD: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
const EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const UNKNOWN: &str = "org.freedesktop.systemd1.NoSuchUnit";

/// Why systemd does not do it.
#[derive(Debug, thiserror::Error)]
enum UnitError {
    #[error("systemd cannot be asked: {0}")]
    Io(#[from] io::Error),
    #[error("systemd does not answer in {} s: see what it waits for by \"systemctl list-jobs\"", .0.as_secs())]
    Late(Duration),
    #[error("the system bus: {0}")]
    Malformed(#[from] Malformed),
    #[error("systemd: {name}: {text}")]
    Answer { name: String, text: String },
    #[error("systemd: the job of {unit} ended as {result}")]
    Job { unit: String, result: String },
}

impl UnitError {
    /// Whether the connection cannot be used any more.
    fn is_final(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Late(_) | Self::Malformed(_))
    }
}

impl From<UnitError> for io::Error {
    fn from(error: UnitError) -> Self {
        match error {
            UnitError::Io(error) => Self::new(error.kind(), format!("systemd cannot be asked: {error}")),
            UnitError::Late(_) => Self::new(io::ErrorKind::TimedOut, error),
            other => Self::other(other),
        }
    }
}

/// A scope that is to be started.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Its name, which ends with `.scope`.
    pub unit: &'a str,
    /// The slice that it is in.
    pub slice: &'a str,
    /// The words that people see.
    pub description: &'a str,
    /// Its first process: a scope without any ends at once.
    pub process: u32,
    /// Whether the machine has cgroup v2 alone.
    pub unified: bool,
}

/// The way to systemd, for any number of callers.
#[derive(Debug)]
pub struct Units {
    bus: Option<PathBuf>,
    patience: Duration,
    pool: Mutex<Pool>,
    freed: Condvar,
    version: OnceLock<u32>,
}

/// The connections to the bus.
#[derive(Debug, Default)]
struct Pool {
    kept: Vec<Bus>,
    used: usize,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            bus: None,
            patience: PATIENCE,
            pool: Mutex::default(),
            freed: Condvar::new(),
            version: OnceLock::new(),
        }
    }
}

impl Units {
    /// The systemd behind another bus than the system's, which answers in so much time or is given up.
    pub fn at(bus: PathBuf, patience: Duration) -> Self {
        Self { bus: Some(bus), patience, ..Self::default() }
    }

    /// The number of systemd's version; 0 if it tells none.
    ///
    /// # Errors
    /// systemd cannot be asked.
    pub fn version(&self) -> io::Result<u32> {
        if let Some(known) = self.version.get() {
            return Ok(*known);
        }
        let told = self.with(|bus| {
            let arguments = [Argument::Text(MANAGER), Argument::Text("Version")];
            let answer = bus.call(&Call {
                destination: SYSTEMD,
                path: PATH,
                interface: PROPERTIES,
                member: "Get",
                arguments: &arguments,
            })?;
            Ok(version(answer.variant_text().ok_or(Malformed::Format)?))
        })?;
        Ok(*self.version.get_or_init(|| told))
    }

    /// Starts a slice, if it is not there.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub fn start_slice(&self, unit: &str) -> io::Result<()> {
        let description = format!("libcontainer container {}", unit.trim_end_matches(".slice"));
        let above = above(unit);
        let wants = above.as_deref().into_iter().collect::<Vec<_>>();
        let mut properties: Vec<Property<'_>> = vec![("Description", Value::Text(&description))];
        if !wants.is_empty() {
            properties.push(("Wants", Value::Texts(&wants)));
        }
        properties.extend(accounting("IOAccounting"));
        self.with(|bus| match bus.start(unit, &properties) {
            Err(UnitError::Answer { name, .. }) if name == EXISTS => Ok(()),
            other => other,
        })
    }

    /// Starts a scope around a process, with these limits. The cgroups below its own are its user's (`Delegate`).
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses; or there is one of that name.
    pub fn start_scope(&self, scope: &Scope<'_>, limits: &[Property<'_>]) -> io::Result<()> {
        let processes = [scope.process];
        let mut properties: Vec<Property<'_>> = vec![
            ("Description", Value::Text(scope.description)),
            ("Slice", Value::Text(scope.slice)),
            ("Delegate", Value::Bool(true)),
            ("PIDs", Value::Processes(&processes)),
        ];
        properties.extend(accounting(if scope.unified { "IOAccounting" } else { "BlockIOAccounting" }));
        properties.extend_from_slice(limits);
        self.with(|bus| {
            let started = match bus.start(scope.unit, &properties) {
                // One that failed is remembered until somebody says that it may be forgotten.
                Err(UnitError::Answer { name, .. }) if name == EXISTS => {
                    unless_gone(bus.reset(scope.unit))?;
                    bus.start(scope.unit, &properties)
                }
                other => other,
            };
            if matches!(started, Err(UnitError::Job { .. })) {
                let _ = bus.reset(scope.unit);
            }
            started
        })
    }

    /// Sets limits of a unit until the machine goes down.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub fn set(&self, unit: &str, properties: &[Property<'_>]) -> io::Result<()> {
        let arguments = [Argument::Text(unit), Argument::Bool(true), Argument::Properties(properties)];
        self.with(|bus| bus.of_manager("SetUnitProperties", &arguments).map(drop))
    }

    /// Ends a unit with all that is in it; one that is not there has ended.
    ///
    /// # Errors
    /// systemd cannot be asked, or refuses.
    pub fn stop(&self, unit: &str) -> io::Result<()> {
        let arguments = [Argument::Text(unit), Argument::Text("replace")];
        self.with(|bus| {
            unless_gone(bus.job(unit, "StopUnit", &arguments))?;
            // One that failed would be remembered.
            unless_gone(bus.reset(unit))
        })
    }

    /// Asks over a connection that nobody else uses meanwhile.
    fn with<T>(&self, ask: impl FnOnce(&mut Bus) -> Result<T, UnitError>) -> io::Result<T> {
        let until = Instant::now() + self.patience;
        let mut seat = self.seat(until)?;
        let bus = match &mut seat.bus {
            Some(bus) => bus,
            none => none.insert(Bus::connect(self.bus.as_ref(), (until, self.patience))?),
        };
        bus.until = (until, self.patience);
        let result = ask(bus);
        if result.as_ref().is_err_and(UnitError::is_final) {
            seat.bus = None;
        }
        Ok(result?)
    }

    /// A connection, if one is kept, and the right to have one.
    fn seat(&self, until: Instant) -> Result<Seat<'_>, UnitError> {
        let mut pool = self.pool.lock();
        while pool.used >= CONNECTIONS {
            if self.freed.wait_until(&mut pool, until).timed_out() {
                return Err(UnitError::Late(self.patience));
            }
        }
        pool.used += 1;
        let bus = std::iter::from_fn(|| pool.kept.pop()).find(Bus::is_alive);
        Ok(Seat { units: self, bus })
    }
}

/// The right to have a connection, which is given back with the connection.
struct Seat<'a> {
    units: &'a Units,
    bus: Option<Bus>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut pool = self.units.pool.lock();
        pool.used -= 1;
        if pool.kept.len() < KEPT {
            pool.kept.extend(self.bus.take());
        }
        self.units.freed.notify_one();
    }
}

/// The properties that all units have; `io` is the name of the one for disks, which is the hierarchy's.
fn accounting(io: &str) -> impl Iterator<Item = Property<'_>> {
    let counted = ["MemoryAccounting", "CPUAccounting", io, "TasksAccounting"];
    let counted = counted.into_iter().map(|name| (name, Value::Bool(true)));
    counted.chain([("DefaultDependencies", Value::Bool(false))])
}

fn unless_gone(result: Result<(), UnitError>) -> Result<(), UnitError> {
    match result {
        Err(UnitError::Answer { name, .. }) if name == UNKNOWN => Ok(()),
        other => other,
    }
}

/// The slice that a slice is in, by its name.
fn above(unit: &str) -> Option<String> {
    let (above, _) = unit.strip_suffix(".slice")?.rsplit_once('-')?;
    Some(format!("{above}.slice"))
}

/// The number in systemd's text of its version; 0 if there is none.
fn version(text: &str) -> u32 {
    let number = text.trim_start_matches(['"', 'v']);
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().unwrap_or(0)
}

/// A connection to the bus, on which nobody else waits.
#[derive(Debug)]
struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
    /// When the call that is under way is given up, and how long that is.
    until: (Instant, Duration),
}

impl Bus {
    fn connect(given: Option<&PathBuf>, until: (Instant, Duration)) -> Result<Self, UnitError> {
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        let addresses = match given {
            Some(path) => vec![Address::Path(path.clone())],
            None => of_system(),
        };
        for address in addresses {
            let stream = match address {
                Address::Path(path) => UnixStream::connect(path),
                Address::Abstract(name) => {
                    SocketAddr::from_abstract_name(name).and_then(|at| UnixStream::connect_addr(&at))
                }
            };
            match stream {
                Ok(stream) => return Self::over(stream, until),
                Err(why) => error = why,
            }
        }
        Err(error.into())
    }

    /// Says hello, and has systemd tell of jobs.
    fn over(stream: UnixStream, until: (Instant, Duration)) -> Result<Self, UnitError> {
        let mut bus = Self { stream: BufReader::new(stream), serial: 0, until };
        let uid = rustix::process::geteuid().as_raw().to_string();
        let uid = uid.bytes().fold(String::new(), |mut hex, digit| {
            let _ = write!(hex, "{digit:02x}");
            hex
        });
        bus.send(format!("\0AUTH EXTERNAL {uid}\r\n").as_bytes())?;
        let mut line = String::new();
        bus.limit()?;
        let read = (&mut bus.stream).take(4096).read_line(&mut line);
        read.map_err(|error| bus.late(error))?;
        if !line.starts_with("OK ") {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, line.trim_end().to_owned()).into());
        }
        bus.send(b"BEGIN\r\n")?;
        bus.of_bus("Hello", &[])?;
        bus.of_manager("Subscribe", &[])?;
        Ok(bus)
    }

    /// Whether the other end is there. Nothing is read.
    fn is_alive(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0];
        match rustix::net::recv(self.stream.get_ref().as_fd(), &mut byte[..], flags) {
            Ok((read, _)) => read > 0,
            Err(error) => error == rustix::io::Errno::AGAIN,
        }
    }

    /// Has the next reads and writes end when the call is given up.
    fn limit(&self) -> Result<(), UnitError> {
        let left = self.until.0.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(UnitError::Late(self.until.1));
        }
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(left))?;
        Ok(stream.set_write_timeout(Some(left))?)
    }

    /// An error of a read or a write, which ends when the call is given up.
    fn late(&self, error: io::Error) -> UnitError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => UnitError::Late(self.until.1),
            _ => error.into(),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), UnitError> {
        self.limit()?;
        let sent = self.stream.get_mut().write_all(bytes);
        sent.map_err(|error| self.late(error))
    }

    fn of_bus(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, UnitError> {
        self.call(&Call { destination: BUS, path: BUS_PATH, interface: BUS, member, arguments })
    }

    fn of_manager(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, UnitError> {
        self.call(&Call { destination: SYSTEMD, path: PATH, interface: MANAGER, member, arguments })
    }

    /// Starts a unit that systemd forgets when it ends.
    fn start(&mut self, unit: &str, properties: &[Property<'_>]) -> Result<(), UnitError> {
        let arguments = [
            Argument::Text(unit),
            Argument::Text("replace"),
            Argument::Properties(properties),
            Argument::NoUnits,
        ];
        self.job(unit, "StartTransientUnit", &arguments)
    }

    /// Has a unit that failed forgotten.
    fn reset(&mut self, unit: &str) -> Result<(), UnitError> {
        self.of_manager("ResetFailedUnit", &[Argument::Text(unit)]).map(drop)
    }

    /// Calls a method that answers with a job, and waits for its end. The ends of jobs are sent here only meanwhile: a
    /// connection that is kept for later gets none.
    fn job(&mut self, unit: &str, member: &str, arguments: &[Argument<'_>]) -> Result<(), UnitError> {
        let rule = format!(
            "type='signal',sender='{SYSTEMD}',interface='{MANAGER}',member='JobRemoved',path='{PATH}'"
        );
        self.of_bus("AddMatch", &[Argument::Text(&rule)])?;
        let ended = self.job_with_ends(unit, member, arguments);
        if ended.as_ref().is_err_and(UnitError::is_final) {
            return ended;
        }
        self.of_bus("RemoveMatch", &[Argument::Text(&rule)])?;
        ended
    }

    fn job_with_ends(
        &mut self,
        unit: &str,
        member: &str,
        arguments: &[Argument<'_>],
    ) -> Result<(), UnitError> {
        let answer = self.of_manager(member, arguments)?;
        let job = answer.object().ok_or(Malformed::Format)?;
        for _ in 0..OTHERS {
            let Some(message) = self.message()? else { continue };
            // The bus writes who sent it: somebody else may send the same.
            let own = message.kind == Kind::Signal && message.sender == answer.sender;
            let ended = message.ended_job().filter(|_| own && message.member == "JobRemoved");
            if let Some((_, result)) = ended.filter(|(ended, _)| *ended == job) {
                let (unit, result) = (unit.to_owned(), result.to_owned());
                return if result == "done" { Ok(()) } else { Err(UnitError::Job { unit, result }) };
            }
        }
        Err(UnitError::Late(self.until.1))
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Message, UnitError> {
        self.serial = self.serial.wrapping_add(1).max(1);
        self.send(&message::encode(self.serial, call))?;
        for _ in 0..OTHERS {
            let Some(message) = self.message()? else { continue };
            if message.answers != Some(self.serial) {
                continue;
            }
            match message.kind {
                Kind::Return => return Ok(message),
                Kind::Error => {
                    let text = message.text().unwrap_or_default().to_owned();
                    return Err(UnitError::Answer { name: message.error, text });
                }
                _ => {}
            }
        }
        Err(UnitError::Late(self.until.1))
    }

    /// Reads a message; none if it is longer than any that is asked for.
    fn message(&mut self) -> Result<Option<Message>, UnitError> {
        let mut fixed = [0; FIXED];
        self.read(&mut fixed)?;
        let length = match message::length(&fixed) {
            Err(Malformed::TooLong(length)) if length <= LONGEST => {
                let mut left = length - FIXED;
                let mut part = [0; 4096];
                while left > 0 {
                    let some = left.min(part.len());
                    self.read(&mut part[..some])?;
                    left -= some;
                }
                return Ok(None);
            }
            other => other?,
        };
        let mut all = fixed.to_vec();
        all.resize(length, 0);
        self.read(&mut all[FIXED..])?;
        Ok(Some(message::decode(&all)?))
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), UnitError> {
        self.limit()?;
        let read = self.stream.read_exact(into);
        read.map_err(|error| self.late(error))
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
