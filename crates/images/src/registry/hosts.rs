//! `hosts.toml`: where a registry's images come from, as containerd reads it
//! (`core/remotes/docker/config/hosts.go`). The reading is pure; [`load`] finds the files.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

/// The largest `hosts.toml`.
const MAX_FILE: u64 = 1 << 20;

/// How a host is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// TLS first, and plain HTTP where the host speaks no TLS.
    Either,
}

/// A host that serves a registry's images.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// The scheme.
    pub scheme: Scheme,
    /// Host and port.
    pub host: String,
    /// The path of its API, without a slash at the end, e.g. `/v2`.
    pub path: String,
    /// Whether it is asked for content.
    pub pull: bool,
    /// Whether it is asked which digest a tag has.
    pub resolve: bool,
    /// Files with certificate authorities beside the machine's.
    pub ca: Vec<PathBuf>,
    /// Files with client certificates and their keys; without a second file, the key is in the first.
    pub client: Vec<(PathBuf, Option<PathBuf>)>,
    /// Whether its certificate is not looked at; `None` if the settings do not say.
    pub skip_verify: Option<bool>,
    /// Headers of each request.
    pub header: Vec<(String, String)>,
    /// How long connecting may take.
    pub dial_timeout: Option<Duration>,
}

/// The fault of a `hosts.toml`.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// It is not TOML.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value has a type or form that it may not have.
    #[error("{key}: {fault}")]
    Value {
        /// The key.
        key: String,
        /// The fault.
        fault: String,
    },
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The hosts of a file, and the keys in it that mean nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// In the order in which they are tried. The last is the server; it has no host if the file names none.
    pub hosts: Vec<Host>,
    /// Keys that are not known.
    pub unknown: Vec<String>,
}

fn wrong(key: &str, fault: impl Into<String>) -> HostsError {
    HostsError::Value { key: key.to_owned(), fault: fault.into() }
}

/// Reads a `hosts.toml`; relative file names in it are below `base`.
pub fn parse(base: &Path, text: &str) -> Result<Parsed, HostsError> {
    let file: Table = text.parse()?;
    let mut parsed = Parsed::default();
    let mut server = Table::new();
    let mut url = String::new();
    for (key, value) in &file {
        match (&**key, value) {
            ("server", Value::String(text)) => url.clone_from(text),
            ("host", Value::Table(hosts)) => {
                for (name, settings) in hosts {
                    let Value::Table(settings) = settings else {
                        return Err(wrong(&format!("host.{name}"), "it must be a table"));
                    };
                    let host =
                        host_of(name, base, settings, &format!("host.{name:?}."), &mut parsed.unknown)?;
                    parsed.hosts.push(host);
                }
            }
            ("server", _) => return Err(wrong(key, "it must be a string")),
            ("host", _) => return Err(wrong(key, "it must be a table")),
            (key, value) => {
                server.insert(key.to_owned(), value.clone());
            }
        }
    }
    let server = host_of(&url, base, &server, "", &mut parsed.unknown)?;
    parsed.hosts.push(server);
    Ok(parsed)
}

fn host_of(
    url: &str,
    base: &Path,
    settings: &Table,
    prefix: &str,
    unknown: &mut Vec<String>,
) -> Result<Host, HostsError> {
    let mut host = Host {
        scheme: Scheme::Https,
        host: String::new(),
        path: String::new(),
        pull: true,
        resolve: true,
        ca: Vec::new(),
        client: Vec::new(),
        skip_verify: None,
        header: Vec::new(),
        dial_timeout: None,
    };
    let mut override_path = false;
    for (key, value) in settings {
        let name = format!("{prefix}{key}");
        match &**key {
            "capabilities" => (host.pull, host.resolve) = capabilities(&name, value)?,
            "ca" => host.ca = strings(&name, value)?.iter().map(|f| base.join(f)).collect(),
            "client" => host.client = pairs(&name, value, base)?,
            "skip_verify" => host.skip_verify = Some(boolean(&name, value)?),
            "override_path" => override_path = boolean(&name, value)?,
            "header" => host.header = headers(&name, value)?,
            "dial_timeout" => {
                let text = value.as_str().ok_or_else(|| wrong(&name, "it must be a string"))?;
                let time = duration(text).ok_or_else(|| wrong(&name, format!("{text:?} is no duration")))?;
                host.dial_timeout = (!time.is_zero()).then_some(time);
            }
            _ => unknown.push(name),
        }
    }
    if !url.is_empty() {
        (host.scheme, host.host, host.path) = address(url, override_path)?;
    }
    Ok(host)
}

/// Scheme, host and path of a URL; a text without a scheme is `https`.
fn address(url: &str, override_path: bool) -> Result<(Scheme, String, String), HostsError> {
    let bad = |fault: &str| wrong(url, fault);
    let full = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let (scheme, rest) = match full.split_once("://") {
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(("https", rest)) => (Scheme::Https, rest),
        _ => return Err(bad("its scheme must be http or https")),
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let plain =
        !host.is_empty() && !host.ends_with(':') && host.bytes().all(|b| b.is_ascii_graphic() && b != b'@');
    if !plain || host.parse::<http::uri::Authority>().is_err() {
        return Err(bad("it has no usable host"));
    }
    let mut clean = String::new();
    for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            clean.truncate(clean.rfind('/').unwrap_or(0));
        } else {
            clean.push('/');
            clean.push_str(part);
        }
    }
    if !override_path && !clean.ends_with("/v2") {
        clean.push_str("/v2");
    }
    if http::uri::PathAndQuery::try_from(if clean.is_empty() { "/" } else { &clean }).is_err() {
        return Err(bad("it has no usable path"));
    }
    Ok((scheme, host.to_owned(), clean))
}

fn boolean(key: &str, value: &Value) -> Result<bool, HostsError> {
    value.as_bool().ok_or_else(|| wrong(key, "it must be true or false"))
}

/// A string or a list of strings.
fn strings(key: &str, value: &Value) -> Result<Vec<String>, HostsError> {
    let bad = || wrong(key, "it must be a string or a list of strings");
    match value {
        Value::String(one) => Ok(vec![one.clone()]),
        Value::Array(list) => list.iter().map(|v| v.as_str().map(str::to_owned).ok_or_else(bad)).collect(),
        _ => Err(bad()),
    }
}

/// Whether to pull and to resolve.
fn capabilities(key: &str, value: &Value) -> Result<(bool, bool), HostsError> {
    let Value::Array(_) = value else { return Err(wrong(key, "it must be a list of strings")) };
    let list = strings(key, value)?;
    if list.is_empty() {
        return Ok((true, true));
    }
    let (mut pull, mut resolve) = (false, false);
    for name in list {
        match &*name.to_ascii_lowercase() {
            "pull" => pull = true,
            "resolve" => resolve = true,
            "push" | "referrers" => {}
            _ => return Err(wrong(key, format!("unknown capability {name}"))),
        }
    }
    Ok((pull, resolve))
}

fn pairs(key: &str, value: &Value, base: &Path) -> Result<Vec<(PathBuf, Option<PathBuf>)>, HostsError> {
    let Value::Array(list) = value else {
        return Ok(strings(key, value)?.iter().map(|f| (base.join(f), None)).collect());
    };
    let pair = |entry: &Value| match entry {
        Value::String(one) => Ok((base.join(one), None)),
        entry => match &*strings(key, entry)? {
            [certificate, private] => {
                Ok((base.join(certificate), (!private.is_empty()).then(|| base.join(private))))
            }
            _ => Err(wrong(key, "a pair has a certificate's file and a key's")),
        },
    };
    list.iter().map(pair).collect()
}

fn headers(key: &str, value: &Value) -> Result<Vec<(String, String)>, HostsError> {
    let Value::Table(table) = value else { return Err(wrong(key, "it must be a table")) };
    let mut list = Vec::new();
    for (name, values) in table {
        let key = format!("{key}.{name}");
        for value in strings(&key, values)? {
            let valid =
                http::HeaderName::try_from(&**name).is_ok() && http::HeaderValue::try_from(&*value).is_ok();
            if !valid {
                return Err(wrong(&key, "it is no header"));
            }
            list.push((name.clone(), value));
        }
    }
    Ok(list)
}

/// A duration in Go's form, e.g. `3s`, `1m30s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..end] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[end..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Whether a domain, with a port or without, is this machine.
pub fn is_local(domain: &str) -> bool {
    let host = match domain.rfind(':') {
        Some(at)
            if !domain[at..].contains(']') && domain.matches(':').count() == 1 || domain.contains("]:") =>
        {
            &domain[..at]
        }
        _ => domain,
    };
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Fills in the host of a registry for which the settings name none.
fn complete(domain: &str, host: &mut Host) {
    "/v2".clone_into(&mut host.path);
    (host.pull, host.resolve) = (true, true);
    if domain == "docker.io" {
        "registry-1.docker.io".clone_into(&mut host.host);
        return;
    }
    domain.clone_into(&mut host.host);
    if is_local(domain) {
        let port = domain.rsplit_once(':').map(|(_, port)| port).filter(|p| !p.ends_with(']'));
        host.scheme = match port {
            Some("80") => Scheme::Http,
            None | Some("443") => Scheme::Https,
            Some(_) => Scheme::Either,
        };
        // Only this machine can answer.
        host.skip_verify = host.skip_verify.or(Some(true));
    }
}

/// The hosts of a registry: those that its directory names, else the registry itself.
pub fn load(directories: &[PathBuf], domain: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = match find(directories, domain)? {
        Some(directory) => read(&directory)?,
        None => parse(Path::new("/"), "")?.hosts,
    };
    if let Some(last) = hosts.last_mut().filter(|h| h.host.is_empty()) {
        complete(domain, last);
    }
    // A host that is told to be spoken to plainly, and how its certificate is verified, is tried with TLS first.
    for host in &mut hosts {
        let tls = host.skip_verify.is_some() || !host.ca.is_empty() || !host.client.is_empty();
        if host.scheme == Scheme::Http && tls && !host.host.ends_with(":80") {
            host.scheme = Scheme::Either;
        }
    }
    Ok(hosts)
}

/// The directory of a registry: `HOST_PORT_`, `HOST:PORT`, or `_default`.
fn find(directories: &[PathBuf], domain: &str) -> Result<Option<PathBuf>, HostsError> {
    // The grammar of references leaves nothing in a domain that a path would understand.
    let escaped = match domain.rfind(':') {
        Some(at) if at > 0 => format!("{}_{}_", &domain[..at], &domain[at + 1..]),
        _ => domain.to_owned(),
    };
    for root in directories {
        for name in [&*escaped, domain, "_default"] {
            let path = root.join(name);
            match fs::metadata(&path) {
                Ok(_) => return Ok(Some(path)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(HostsError::Io { path, source }),
            }
        }
    }
    Ok(None)
}

/// Reads a registry's directory: `hosts.toml`, or Docker's certificate files beside where it would be.
fn read(directory: &Path) -> Result<Vec<Host>, HostsError> {
    let path = directory.join("hosts.toml");
    let io = |source| HostsError::Io { path: path.clone(), source };
    let text = match fs::metadata(&path) {
        Ok(facts) if facts.len() > MAX_FILE => return Err(io(io::Error::other("it is too large"))),
        Ok(_) => fs::read_to_string(&path).map_err(io)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(io(e)),
    };
    // DIFFERENCE: containerd logs a file that it cannot read, and goes on as if it were not there. A mirror that was
    // asked for would be missed in silence; so the pull fails, and says why.
    let parsed = parse(directory, &text)?;
    if !parsed.unknown.is_empty() {
        tracing::warn!(file = %path.display(), keys = ?parsed.unknown, "keys that mean nothing here are ignored");
    }
    let mut hosts = parsed.hosts;
    if text.is_empty()
        && let Some(host) = hosts.last_mut()
    {
        certificates(directory, host)
            .map_err(|source| HostsError::Io { path: directory.to_owned(), source })?;
    }
    Ok(hosts)
}

/// Docker's files: `*.crt` are authorities, `*.cert` with `*.key` beside it a client's certificate.
fn certificates(directory: &Path, host: &mut Host) -> io::Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
    files.sort();
    for file in &files {
        match file.extension().and_then(|e| e.to_str()) {
            Some("crt") => host.ca.push(file.clone()),
            Some("cert") => {
                let key = file.with_extension("key");
                if !files.contains(&key) {
                    return Err(io::Error::other(format!("{} has no key beside it", file.display())));
                }
                host.client.push((file.clone(), Some(key)));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
