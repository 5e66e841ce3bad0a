//! HTTP as any client speaks it, through curl: a test sees the bytes on the wire.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A request that is not sent yet.
#[must_use]
pub struct Request {
    command: Command,
    body: Option<Vec<u8>>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// The body as it came; decoded, if [`Request::decoded`] asked for it.
    pub body: Vec<u8>,
}

/// A request whose answer is still to come; it ends when it is dropped.
pub struct Pending(Option<Child>);

/// An answer whose body goes on.
pub struct Stream {
    curl: Child,
    out: BufReader<ChildStdout>,
    /// The head of the answer.
    pub head: Answer,
}

impl Request {
    /// `command` runs curl with the flags for access.
    pub(crate) fn new(mut command: Command, method: &str, url: &str) -> Self {
        // With `-g`, brackets in a query are only brackets.
        command.args(["--silent", "--show-error", "-g", "--max-time", "120", "-X", method, url]);
        // The output of `--dump-header` comes at once; that of `--include` comes only with the body.
        command.args(if method == "HEAD" { &["--head"][..] } else { &["--dump-header", "-"] });
        Self { command, body: None }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.command.arg("-H").arg(format!("{name}: {value}"));
        self
    }

    /// Adds a line of the head as it is, of any bytes.
    pub fn raw_header(mut self, line: &[u8]) -> Self {
        self.command.arg("-H").arg(OsStr::from_bytes(line));
        self
    }

    /// Adds an `Accept` header.
    pub fn accept(self, value: &str) -> Self {
        self.header("Accept", value)
    }

    /// Sets the body.
    pub fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut this = self.header("Content-Type", content_type);
        this.command.args(["--data-binary", "@-"]);
        this.body = Some(body.into());
        this
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Asks for compression, and decompresses the answer.
    pub fn decoded(mut self) -> Self {
        self.command.arg("--compressed");
        self
    }

    /// Adds a flag of curl.
    pub fn flag(mut self, flag: &str) -> Self {
        self.command.arg(flag);
        self
    }

    fn spawn(&mut self) -> Result<Child> {
        let mut curl = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("running curl")?;
        let mut stdin = curl.stdin.take().context("curl has no input")?;
        if let Some(body) = self.body.take() {
            // A server may answer before it has read the whole body.
            std::thread::spawn(move || stdin.write_all(&body));
        }
        Ok(curl)
    }

    /// Sends the request and takes the whole answer.
    pub fn send(mut self) -> Result<Answer> {
        Answer::of(self.spawn()?)
    }

    /// Sends the request; its answer is waited for later.
    pub fn send_later(mut self) -> Result<Pending> {
        Ok(Pending(Some(self.spawn()?)))
    }

    /// Sends the request and takes the answer as it comes.
    pub fn stream(mut self) -> Result<Stream> {
        let mut curl = self.flag_unbuffered().spawn()?;
        let mut out = BufReader::new(curl.stdout.take().context("curl has no output")?);
        let head = Answer::head(&mut out)?;
        Ok(Stream { curl, out, head })
    }

    fn flag_unbuffered(&mut self) -> &mut Self {
        self.command.arg("--no-buffer");
        self
    }
}

impl Pending {
    /// Waits for the answer.
    pub fn wait(mut self) -> Result<Answer> {
        Answer::of(self.0.take().context("it was waited for")?)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(curl) = &mut self.0 {
            // The process may have ended already.
            let _ = curl.kill();
            let _ = curl.wait();
        }
    }
}

impl Answer {
    fn of(curl: Child) -> Result<Self> {
        let out = curl.wait_with_output()?;
        let mut bytes = &out.stdout[..];
        let Ok(mut answer) = Self::head(&mut bytes) else {
            bail!("curl: {}", String::from_utf8_lossy(&out.stderr).trim());
        };
        answer.body = bytes.to_vec();
        Ok(answer)
    }

    fn head(from: &mut impl BufRead) -> Result<Self> {
        let mut line = || -> Result<String> {
            let mut line = String::new();
            ensure!(from.read_line(&mut line)? > 0, "the answer has no end of its head");
            Ok(line.trim_end().to_owned())
        };
        loop {
            let first = line()?;
            let status = first.split(' ').nth(1).context("no status line")?.parse()?;
            let mut headers = Vec::new();
            loop {
                let header = line()?;
                let Some((name, value)) = header.split_once(':') else { break };
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            // A status that only invites the body is not the answer.
            if status >= 200 {
                return Ok(Self { status, headers, body: Vec::new() });
            }
        }
    }

    /// The first header of a name; "" if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v)
    }

    /// All headers of a name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The answer, if it has the expected code; otherwise an error with its text.
    pub fn expect(self, status: u16) -> Result<Self> {
        ensure!(self.status == status, "{} instead of {status}: {}", self.status, self.text());
        Ok(self)
    }
}

impl Stream {
    /// The next line; `None` at the end.
    pub fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        Ok((self.out.read_line(&mut line)? > 0).then_some(line))
    }

    /// The next line as JSON; an error at the end.
    pub fn json(&mut self) -> Result<Value> {
        Ok(serde_json::from_str(&self.line()?.context("the stream ended")?)?)
    }

    /// The next bytes, exactly so many.
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        std::io::Read::read_exact(&mut self.out, &mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}
