//! `/logs/?query=…`: what services of the node wrote, from the journal or their files; upstream's `enableSystemLogQuery`.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serving::{Body, Failure};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::body::channel_body;
use super::files;
use super::query::Query;

/// The most services of a query, the longest name of one, and the most lines; upstream's.
const SERVICES: usize = 4;
const NAME: usize = 256;
const LINES: i64 = 100_000;
/// How long the journal may take; upstream's.
const TIME: Duration = Duration::from_secs(30);
/// How many queries run at once.
static TURNS: Semaphore = Semaphore::const_new(4);

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// Services, with the flags of journalctl.
    Services {
        /// Their names.
        names: Vec<String>,
        /// The flags that the options stand for.
        flags: Vec<String>,
    },
    /// A file below the logs.
    File(String),
}

/// A field's error as upstream writes it.
fn invalid(field: &str, value: impl std::fmt::Debug, why: &str) -> String {
    format!("{field}: Invalid value: {value:?}: {why}")
}

fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// A time of a query, and its text as journalctl reads it.
fn time(query: &Query, field: &str, errors: &mut Vec<String>) -> Option<(Timestamp, String)> {
    let text = query.get(field).filter(|text| !text.is_empty())?;
    let Some(time) = api::time::parse(text) else {
        errors.push(invalid(field, text, "invalid time format"));
        return None;
    };
    let utc = time.to_zoned(jiff::tz::TimeZone::UTC);
    Some((time, utc.strftime("%Y-%m-%d %H:%M:%S").to_string()))
}

fn number(query: &Query, field: &str, errors: &mut Vec<String>) -> Option<i64> {
    let text = query.get(field).filter(|text| !text.is_empty())?;
    let number = text.parse().ok();
    if number.is_none() {
        let why = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
        errors.push(invalid(field, text, &why));
    }
    number
}

/// Reads a query; none if there is none. The status of an error is 400 for what cannot be read, and 406 for what is not
/// taken.
///
/// # Errors
/// Upstream's texts.
pub(super) fn read(query: &Query) -> Result<Option<Asked>, Failure> {
    let mut errors = Vec::new();
    let queries: Vec<&str> = query.all("query").collect();
    // A slash of either kind is a hint that a file is meant.
    let (named, services): (Vec<&str>, Vec<&str>) = queries.iter().partition(|q| q.contains(['/', '\\']));
    let services: Vec<&str> = services.into_iter().filter(|q| !q.trim().is_empty()).collect();
    if !queries.is_empty() && named.is_empty() && services.is_empty() {
        errors.push(invalid("query", &queries, "query cannot be empty"));
    }
    let since = time(query, "sinceTime", &mut errors);
    let until = time(query, "untilTime", &mut errors);
    let boot = number(query, "boot", &mut errors);
    let lines = number(query, "tailLines", &mut errors);
    let pattern = query.get("pattern").filter(|pattern| !pattern.is_empty());
    if !errors.is_empty() {
        return Err(Failure::bad_request(joined(&errors)));
    }
    let options =
        since.is_some() || until.is_some() || boot.is_some() || lines.is_some() || pattern.is_some();
    if queries.is_empty() && !options {
        return Ok(None);
    }
    for name in &services {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        if name.len() > NAME {
            errors.push(invalid("query", name, "length must be less than 100"));
        } else if !name.chars().all(safe) {
            errors.push(invalid("query", name, "input contains unsupported characters"));
        }
    }
    if services.len() > SERVICES {
        errors.push(format!("query: Too many: {}: must have at most {SERVICES} items", services.len()));
    }
    match (named.as_slice(), services.as_slice()) {
        ([], []) => errors.push("query: Required value: cannot be empty with options".into()),
        ([_, ..], [_, ..]) => {
            let both = format!("[{}], [{}]", named.join(" "), services.join(" "));
            errors.push(invalid("query", both, "cannot specify a file and service"));
        }
        ([_, _, ..], []) => errors.push(invalid("query", &named, "cannot specify more than one file")),
        ([_], []) if options => errors.push(invalid("query", &named, "cannot specify file with options")),
        _ => {}
    }
    if let (Some((since, _)), Some((until, text))) = (&since, &until)
        && since > until
    {
        errors.push(invalid("untilTime", text, "must be after `sinceTime`"));
    }
    if let Some(boot) = boot.filter(|boot| *boot > 0) {
        errors.push(format!("boot: Invalid value: {boot}: must be less than 1"));
    }
    if let Some(lines) = lines.filter(|lines| !(0..=LINES).contains(lines)) {
        let why = format!("must be between 0 and {LINES}, inclusive");
        errors.push(format!("tailLines: Invalid value: {lines}: {why}"));
    }
    if !errors.is_empty() {
        return Err(Failure::new(StatusCode::NOT_ACCEPTABLE, joined(&errors)));
    }
    if let [file] = named.as_slice() {
        return Ok(Some(Asked::File(file.replace('\\', "/"))));
    }
    let mut flags = vec!["--utc".to_owned(), "--no-pager".to_owned(), "--output=short-precise".to_owned()];
    flags.extend(since.map(|(_, text)| format!("--since={text}")));
    flags.extend(until.map(|(_, text)| format!("--until={text}")));
    if let Some(lines) = lines {
        flags.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
    }
    flags.extend(pattern.map(|pattern| format!("--grep={pattern}")));
    flags.extend(boot.map(|boot| format!("--boot={boot}")));
    let names = services.into_iter().map(str::to_owned).collect();
    Ok(Some(Asked::Services { names, flags }))
}

/// Answers a query.
///
/// # Errors
/// There is no such file, or too many ask.
pub(super) async fn serve(asked: Asked) -> Result<Response<Body>, Failure> {
    let (names, flags) = match asked {
        Asked::File(file) => return files::serve(&file).await,
        Asked::Services { names, flags } => (names, flags),
    };
    let Ok(turn) = TURNS.try_acquire() else {
        return Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "too many queries of logs run already"));
    };
    let (sender, body) = channel_body();
    tokio::spawn(async move {
        let told = timeout(TIME, tell(&names, &flags, &sender)).await;
        drop(turn);
        if told.is_err() {
            // A caller that does not read is not waited for.
            let _ = sender.try_send(Bytes::from_static(b"\ncontext error: context deadline exceeded\n"));
        }
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain;charset=UTF-8"));
    Ok(response)
}

/// Writes what the services wrote.
async fn tell(names: &[String], flags: &[String], to: &mpsc::Sender<Bytes>) {
    // As upstream, services that the journal does not know are looked for among the files.
    let units =
        Command::new("journalctl").args(["--field", "_SYSTEMD_UNIT"]).kill_on_drop(true).output().await;
    let units = units.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    let in_journal = |name: &&String| units.contains(&format!("{name}.service"));
    let (journaled, filed): (Vec<&String>, Vec<&String>) = names.iter().partition(in_journal);
    if !filed.is_empty() {
        let options = flags.len() > 3;
        for name in filed {
            let text = if options {
                format!(
                    "\noptions present and query resolved to log files for [{name}]\ntry without specifying options\n"
                )
            } else if files::copy_log(name, to).await {
                continue;
            } else {
                format!("\nlog not found for {name}\n")
            };
            let _ = to.send(text.into()).await;
        }
        return;
    }
    let units = journaled.iter().map(|name| format!("--unit={name}"));
    let child = Command::new("journalctl")
        .args(flags)
        .args(units)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = child else {
        let _ = to.send(Bytes::from_static(b"\nerror: journal output not available\n")).await;
        return;
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    tokio::join!(pass_on(out, to), pass_on(err, to));
    let _ = child.wait().await;
}

async fn pass_on(from: Option<impl AsyncRead + Unpin>, to: &mpsc::Sender<Bytes>) {
    let Some(mut from) = from else { return };
    let mut buffer = bytes::BytesMut::with_capacity(64 << 10);
    while matches!(from.read_buf(&mut buffer).await, Ok(n) if n > 0) {
        if to.send(buffer.split().freeze()).await.is_err() {
            return;
        }
        buffer.reserve(64 << 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's cases of `newNodeLogQuery` and `validate`, and their texts.
    #[test]
    fn queries_are_read_as_upstream_reads_them() {
        let check = |text: &str, expected: Result<Option<Asked>, (u16, &str)>| {
            let got = read(&Query::parse(text)).map_err(|failure| (failure.code.as_u16(), failure.text));
            assert_eq!(got, expected.map_err(|(code, text)| (code, text.to_owned())), "{text}");
        };
        let services = |names: &[&str], flags: &[&str]| {
            let usual = ["--utc", "--no-pager", "--output=short-precise"];
            let own = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            let flags = [own(&usual), own(flags)].concat();
            Ok(Some(Asked::Services { names: own(names), flags }))
        };
        check("", Ok(None));
        check("x=y", Ok(None));
        check("query=kubelet", services(&["kubelet"], &[]));
        check("query=kubelet&query=a.b:c@d-e_f", services(&["kubelet", "a.b:c@d-e_f"], &[]));
        check("query=/foo.log", Ok(Some(Asked::File("/foo.log".into()))));
        check("query=foo%5Cbar.log", Ok(Some(Asked::File("foo/bar.log".into()))));
        check(
            "query=k&tailLines=5&boot=-1&pattern=a.*b&sinceTime=2023-10-01T00:00:00Z&untilTime=2023-10-01T01:00:00Z",
            services(
                &["k"],
                &[
                    "--since=2023-10-01 00:00:00",
                    "--until=2023-10-01 01:00:00",
                    "--pager-end",
                    "--lines=5",
                    "--grep=a.*b",
                    "--boot=-1",
                ],
            ),
        );
        let empty = "query: Invalid value: [\"  \"]: query cannot be empty";
        check("query=%20%20", Err((400, empty)));
        check("query=k&sinceTime=x", Err((400, "sinceTime: Invalid value: \"x\": invalid time format")));
        let atoi = "boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax";
        check("query=k&boot=x", Err((400, atoi)));
        check("tailLines=5", Err((406, "query: Required value: cannot be empty with options")));
        let unsafe_name = "query: Invalid value: \"a;b\": input contains unsupported characters";
        check("query=a;b", Err((406, unsafe_name)));
        check(
            "query=--x%20y",
            Err((406, "query: Invalid value: \"--x y\": input contains unsupported characters")),
        );
        check(
            "query=a&query=b&query=c&query=d&query=e",
            Err((406, "query: Too many: 5: must have at most 4 items")),
        );
        let both = "query: Invalid value: \"[/f], [k]\": cannot specify a file and service";
        check("query=/f&query=k", Err((406, both)));
        check(
            "query=/f&query=/g",
            Err((406, "query: Invalid value: [\"/f\", \"/g\"]: cannot specify more than one file")),
        );
        check(
            "query=/f&boot=0",
            Err((406, "query: Invalid value: [\"/f\"]: cannot specify file with options")),
        );
        check("query=k&boot=1", Err((406, "boot: Invalid value: 1: must be less than 1")));
        let lines = "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive";
        check("query=k&tailLines=100001", Err((406, lines)));
        let order = "untilTime: Invalid value: \"2023-10-01 00:00:00\": must be after `sinceTime`";
        check("query=k&sinceTime=2023-10-01T01:00:00Z&untilTime=2023-10-01T00:00:00Z", Err((406, order)));
    }
}
