//! The queries of requests for logs and streams, as the API and the kubelet have them.

use access::Query;
use api::Status;
use api::status::{FieldError, FieldErrorKind};

/// The streams of exec and attach.
pub(super) fn stream_options(query: &Query) -> streaming::remotecommand::Options {
    let on = |key| query.bool(key).unwrap_or(false);
    streaming::remotecommand::Options {
        stdin: on("stdin"),
        stdout: on("stdout"),
        stderr: on("stderr"),
        tty: on("tty"),
    }
}

/// The kubelet's query of exec and attach. Its parameters are not named as the API's are.
pub(super) fn stream_query(options: streaming::remotecommand::Options, query: &Query, exec: bool) -> String {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    if exec {
        pairs.extend(query.all("command").map(|c| ("command", c)));
    }
    for (on, key) in [
        (options.stderr, "error"),
        (options.stdin, "input"),
        (options.stdout, "output"),
        (options.tty, "tty"),
    ] {
        if on {
            pairs.push((key, "1"));
        }
    }
    encode(&pairs)
}

/// The ports of port-forward.
pub(super) fn ports(query: &Query) -> Result<Vec<i32>, Status> {
    let ports = query.all("ports").flat_map(|v| v.split(',')).filter(|p| !p.is_empty());
    let number = |port: &str| {
        let invalid = format!("strconv.ParseInt: parsing {port:?}: invalid syntax");
        port.parse().map_err(|_| Status::bad_request(invalid))
    };
    ports.map(number).collect()
}

/// The kubelet's query of port-forward.
pub(super) fn port_query(query: &Query) -> Result<String, Status> {
    let ports: Vec<String> = ports(query)?.iter().map(i32::to_string).collect();
    Ok(if ports.is_empty() { String::new() } else { encode(&[("port", &ports.join(","))]) })
}

/// The options of a log request, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogOptions {
    /// Container, "" for the only one.
    pub(super) container: String,
    /// The kubelet's query.
    pub(super) query: String,
    /// The kubelet's certificate is not verified.
    pub(super) unverified: bool,
}

/// The streams of a container that a log may be of; upstream's.
const STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

/// Reads and checks the options of a log request about the Pod `name`. `streams`: whether one stream of a container may be
/// asked for; upstream's gate `PodLogsQuerySplitStreams`.
pub(super) fn log_options(query: &Query, name: &str, streams: bool) -> Result<LogOptions, Status> {
    let mut errors = Vec::new();
    let mut invalid = |field: &str, value: i64, detail: &str| {
        errors.push(FieldError {
            kind: FieldErrorKind::Invalid,
            field: field.into(),
            value: Some(value.to_string()),
            detail: detail.into(),
        });
    };
    let tail = query.int("tailLines")?;
    if let Some(n) = tail.filter(|n| *n < 0) {
        invalid("tailLines", n, "must be greater than or equal to 0");
    }
    let limit = query.int("limitBytes")?;
    if let Some(n) = limit.filter(|n| *n < 1) {
        invalid("limitBytes", n, "must be greater than 0");
    }
    let since = query.int("sinceSeconds")?;
    let since_time = match query.get("sinceTime").filter(|t| !t.is_empty()) {
        None => None,
        Some(text) => Some(text.parse::<jiff::Timestamp>().map_err(|e| {
            Status::bad_request(format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": {e}"))
        })?),
    };
    if since_time.is_none()
        && let Some(n) = since.filter(|n| *n < 1)
    {
        invalid("sinceSeconds", n, "must be greater than 0");
    }
    let forbidden = |field: &str, detail: &str| FieldError {
        kind: FieldErrorKind::Forbidden,
        field: field.into(),
        value: None,
        detail: detail.into(),
    };
    if since.is_some() && since_time.is_some() {
        errors.push(forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    let stream = query.get("stream");
    if !streams && stream.is_some() {
        errors.push(forbidden("stream", "may not be specified"));
    }
    let stream = streams.then(|| stream.unwrap_or("All").to_owned());
    if let Some(stream) = stream.as_ref().filter(|stream| **stream != "All") {
        if !STREAMS.contains(&stream.as_str()) {
            errors.push(FieldError {
                kind: FieldErrorKind::NotSupported,
                field: "stream".into(),
                value: Some(format!("{stream:?}")),
                detail: format!("supported values: {}", STREAMS.map(|s| format!("{s:?}")).join(", ")),
            });
        }
        if tail.is_some() {
            errors.push(forbidden("", "`tailLines` and specific `stream` are mutually exclusive for now"));
        }
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", name, &errors));
    }
    let on = |key| query.bool(key).unwrap_or(false);
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let flag = |pairs: &mut Vec<(&str, String)>, key: &'static str| {
        if on(key) {
            pairs.push((key, "true".into()));
        }
    };
    flag(&mut pairs, "follow");
    pairs.extend(limit.map(|n| ("limitBytes", n.to_string())));
    flag(&mut pairs, "previous");
    pairs.extend(since.map(|n| ("sinceSeconds", n.to_string())));
    pairs.extend(since_time.map(|t| ("sinceTime", format!("{t:.0}"))));
    pairs.extend(stream.map(|stream| ("stream", stream)));
    pairs.extend(tail.map(|n| ("tailLines", n.to_string())));
    flag(&mut pairs, "timestamps");
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (*k, v.as_str())).collect();
    Ok(LogOptions {
        container: query.str("container").to_owned(),
        query: encode(&pairs),
        unverified: on("insecureSkipTLSVerifyBackend"),
    })
}

/// Writes the bytes that are not kept as `%` and two digits.
pub(super) fn escape(text: &str, keep: impl Fn(u8) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if keep(byte) {
            out.push(byte as char);
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)] as char);
            out.push(HEX[usize::from(byte & 15)] as char);
        }
    }
    out
}

fn encode(pairs: &[(&str, &str)]) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let pairs: Vec<String> =
        pairs.iter().map(|(k, v)| format!("{}={}", escape(k, plain), escape(v, plain))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_queries() {
        let check = |query: &str, expected: Result<&str, &str>| {
            let got = log_options(&Query::parse(query), "p", false).map(|o| o.query).map_err(|s| s.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{query}");
        };
        check("", Ok(""));
        check("container=c&follow=true&tailLines=0", Ok("follow=true&tailLines=0"));
        check(
            "sinceTime=2024-01-02T03:04:05Z&timestamps=1",
            Ok("sinceTime=2024-01-02T03%3A04%3A05Z&timestamps=true"),
        );
        check(
            "tailLines=-1",
            Err(
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
        );
        check(
            "limitBytes=0",
            Err("PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"),
        );
        check(
            "sinceSeconds=0",
            Err("PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0"),
        );
        check(
            "stream=Stdout",
            Err("PodLogOptions \"p\" is invalid: stream: Forbidden: may not be specified"),
        );
        check("tailLines=x", Err("strconv.ParseInt: parsing \"x\": invalid syntax"));
    }

    /// Upstream's cases of `TestValidPodLogOptions` and `TestLogLocation` with the gate on.
    #[test]
    fn log_queries_of_one_stream() {
        let check = |query: &str, expected: Result<&str, &str>| {
            let got = log_options(&Query::parse(query), "p", true).map(|o| o.query).map_err(|s| s.message);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{query}");
        };
        check("", Ok("stream=All"));
        check("stream=Stdout", Ok("stream=Stdout"));
        check("stream=All&tailLines=1", Ok("stream=All&tailLines=1"));
        check(
            "stream=Stdout&limitBytes=1&sinceTime=2024-01-02T03:04:05Z",
            Ok("limitBytes=1&sinceTime=2024-01-02T03%3A04%3A05Z&stream=Stdout"),
        );
        let unknown = |stream: &str| {
            format!(
                "PodLogOptions \"p\" is invalid: stream: Unsupported value: {stream:?}: supported values: \"All\", \"Stderr\", \"Stdout\""
            )
        };
        check("stream=invalid", Err(&unknown("invalid")));
        check("stream=", Err(&unknown("")));
        check(
            "stream=Stderr&tailLines=1",
            Err(
                "PodLogOptions \"p\" is invalid: : Forbidden: `tailLines` and specific `stream` are mutually exclusive for now",
            ),
        );
    }

    #[test]
    fn exec_queries() {
        let query = Query::parse(
            "container=c&command=sh&command=-c&command=a+b%26&stdin=true&stdout=1&stderr=false&tty=true",
        );
        let options = stream_options(&query);
        assert_eq!(
            stream_query(options, &query, true),
            "command=sh&command=-c&command=a%20b%26&input=1&output=1&tty=1"
        );
        assert_eq!(port_query(&Query::parse("ports=80&ports=443,8080")).unwrap(), "port=80%2C443%2C8080");
        assert!(port_query(&Query::parse("ports=http")).is_err());
    }
}
