//! Messages of D-Bus, as far as systemd and logind are asked; the format is that of the D-Bus specification 1.0. Pure.

/// The most bytes of a message that is read. The answers of logind are small; the bus itself allows 128 MiB.
const MOST: usize = 64 << 10;
/// The length of the part of the header that every message has.
pub(crate) const FIXED: usize = 16;

/// The kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Return,
    Error,
    Signal,
    /// One that is none of these, which the specification has readers ignore.
    Other,
}

/// A message that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is longer than any answer of logind.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// It does not keep to the format.
    #[error("a message does not keep to the format")]
    Format,
}

/// A call of a method.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) destination: &'a str,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    pub(crate) arguments: &'a [Argument<'a>],
}

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    Text(&'a str),
    Int32(i32),
    Bool(bool),
    /// Properties of a unit, `a(sv)`.
    Properties(&'a [Property<'a>]),
    /// Further units, `a(sa(sv))`: none.
    NoUnits,
}

/// A property of a unit: its name and its value.
pub type Property<'a> = (&'a str, Value<'a>);

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// `s`
    Text(&'a str),
    /// `as`
    Texts(&'a [&'a str]),
    /// `b`
    Bool(bool),
    /// `t`
    Number(u64),
    /// `au`, of numbers of processes.
    Processes(&'a [u32]),
    /// `ay`
    Bytes(Vec<u8>),
    /// `a(ss)`
    Pairs(Vec<(String, String)>),
}

/// A message as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The serial number of the call that it answers.
    pub(crate) answers: Option<u32>,
    pub(crate) path: String,
    pub(crate) interface: String,
    pub(crate) member: String,
    pub(crate) error: String,
    /// The unique name of its sender; the bus puts it in, so nobody can lie about it.
    pub(crate) sender: String,
    /// How many file descriptors belong to it.
    pub(crate) descriptors: u32,
    signature: String,
    body: Vec<u8>,
    little: bool,
}

/// Puts values behind each other, each at a multiple of its own size.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend(value.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend(text.bytes());
        self.0.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(signature.len() as u8);
        self.0.extend(signature.bytes());
        self.0.push(0);
    }

    /// An array, whose elements begin at multiples of `to`. Its length counts from the first element on.
    fn array(&mut self, to: usize, elements: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length = self.0.len() - 4;
        self.align(to);
        let first = self.0.len();
        elements(self);
        let bytes = (self.0.len() - first) as u32;
        self.0[length..length + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    fn property(&mut self, (name, value): &Property<'_>) {
        self.align(8);
        self.text(name);
        match value {
            Value::Text(text) => {
                self.signature("s");
                self.text(text);
            }
            Value::Texts(texts) => {
                self.signature("as");
                self.array(4, |array| texts.iter().for_each(|text| array.text(text)));
            }
            Value::Bool(value) => {
                self.signature("b");
                self.u32(u32::from(*value));
            }
            Value::Number(value) => {
                self.signature("t");
                self.align(8);
                self.0.extend(value.to_le_bytes());
            }
            Value::Processes(all) => {
                self.signature("au");
                self.array(4, |array| all.iter().for_each(|one| array.u32(*one)));
            }
            Value::Bytes(bytes) => {
                self.signature("ay");
                self.array(1, |array| array.0.extend(bytes));
            }
            Value::Pairs(all) => {
                self.signature("a(ss)");
                self.array(8, |array| {
                    for (one, other) in all {
                        array.align(8);
                        array.text(one);
                        array.text(other);
                    }
                });
            }
        }
    }

    /// A field of the header.
    fn field(&mut self, code: u8, kind: &str, value: &str) {
        self.align(8);
        self.0.push(code);
        self.signature(kind);
        if kind == "g" { self.signature(value) } else { self.text(value) }
    }
}

/// The bytes of a call.
pub(crate) fn encode(serial: u32, call: &Call<'_>) -> Vec<u8> {
    let mut body = Writer::default();
    let mut signature = String::new();
    for argument in call.arguments {
        match argument {
            Argument::Text(text) => {
                signature.push('s');
                body.text(text);
            }
            Argument::Int32(value) => {
                signature.push('i');
                body.u32(*value as u32);
            }
            Argument::Bool(value) => {
                signature.push('b');
                body.u32(u32::from(*value));
            }
            Argument::Properties(all) => {
                signature.push_str("a(sv)");
                body.array(8, |array| all.iter().for_each(|one| array.property(one)));
            }
            Argument::NoUnits => {
                signature.push_str("a(sa(sv))");
                body.array(8, |_| ());
            }
        }
    }
    // Little-endian, a call, no flags, version 1.
    let mut out = Writer(vec![b'l', 1, 0, 1]);
    out.u32(body.0.len() as u32);
    out.u32(serial);
    out.u32(0);
    out.field(1, "o", call.path);
    out.field(2, "s", call.interface);
    out.field(3, "s", call.member);
    out.field(6, "s", call.destination);
    if !signature.is_empty() {
        out.field(8, "g", &signature);
    }
    let fields = (out.0.len() - FIXED) as u32;
    out.0[12..16].copy_from_slice(&fields.to_le_bytes());
    out.align(8);
    out.0.extend(body.0);
    out.0
}

/// Reads values, each at a multiple of its own size.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    little: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn align(&mut self, to: usize) -> Option<()> {
        let gap = self.at.next_multiple_of(to) - self.at;
        self.take(gap).map(drop)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4)?;
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn u64(&mut self) -> Option<u64> {
        self.align(8)?;
        let bytes = self.take(8)?.try_into().ok()?;
        Some(if self.little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u32()?;
        self.terminated(length as usize)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let length = self.u8()?;
        self.terminated(usize::from(length))
    }

    fn terminated(&mut self, length: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (self.u8()? == 0).then_some(text)
    }
}

/// How long a message is in all, by the beginning of its header.
///
/// # Errors
/// It is no message, or too long a one.
pub(crate) fn length(fixed: &[u8; FIXED]) -> Result<usize, Malformed> {
    let little = match fixed[0] {
        b'l' => true,
        b'B' => false,
        _ => return Err(Malformed::Format),
    };
    let mut reader = Reader { bytes: fixed, at: 4, little };
    let (Some(body), Some(_), Some(fields)) = (reader.u32(), reader.u32(), reader.u32()) else {
        return Err(Malformed::Format);
    };
    if fixed[3] != 1 {
        return Err(Malformed::Format);
    }
    let (body, fields) = (body as usize, fields as usize);
    let header = fields.saturating_add(FIXED).checked_next_multiple_of(8).unwrap_or(usize::MAX);
    let length = header.saturating_add(body);
    if body > MOST || fields > MOST { Err(Malformed::TooLong(length)) } else { Ok(length) }
}

/// Reads a whole message.
///
/// # Errors
/// It is none.
pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
    let fixed = bytes.first_chunk::<FIXED>().ok_or(Malformed::Format)?;
    if length(fixed)? != bytes.len() {
        return Err(Malformed::Format);
    }
    read(bytes).ok_or(Malformed::Format)
}

fn read(bytes: &[u8]) -> Option<Message> {
    let mut reader = Reader { bytes, at: 0, little: bytes[0] == b'l' };
    let little = reader.little;
    reader.take(1)?;
    let kind = match reader.u8()? {
        1 => Kind::Call,
        2 => Kind::Return,
        3 => Kind::Error,
        4 => Kind::Signal,
        _ => Kind::Other,
    };
    reader.take(2)?;
    let body = reader.u32()? as usize;
    reader.u32()?;
    let end = reader.u32()? as usize + FIXED;
    let mut message = Message {
        kind,
        answers: None,
        path: String::new(),
        interface: String::new(),
        member: String::new(),
        error: String::new(),
        sender: String::new(),
        descriptors: 0,
        signature: String::new(),
        body: bytes.get(bytes.len() - body..)?.to_vec(),
        little,
    };
    while reader.at < end {
        reader.align(8)?;
        let code = reader.u8()?;
        match reader.signature()? {
            "s" | "o" => {
                let text = reader.text()?.to_owned();
                match code {
                    1 => message.path = text,
                    2 => message.interface = text,
                    3 => message.member = text,
                    4 => message.error = text,
                    7 => message.sender = text,
                    _ => {}
                }
            }
            "g" => {
                let signature = reader.signature()?;
                if code == 8 {
                    signature.clone_into(&mut message.signature);
                }
            }
            "u" => {
                let number = reader.u32()?;
                match code {
                    5 => message.answers = Some(number),
                    9 => message.descriptors = number,
                    _ => {}
                }
            }
            // A field of a type that the specification does not have.
            _ => return None,
        }
    }
    (reader.at == end).then_some(message)
}

impl Message {
    fn body(&self, signature: &str) -> Option<Reader<'_>> {
        let reader = Reader { bytes: &self.body, at: 0, little: self.little };
        self.signature.starts_with(signature).then_some(reader)
    }

    /// The text that it begins with.
    pub(crate) fn text(&self) -> Option<&str> {
        self.body("s")?.text()
    }

    /// The bool that it begins with.
    pub(crate) fn boolean(&self) -> Option<bool> {
        self.body("b")?.u32().map(|value| value != 0)
    }

    /// The number of the file descriptor that it begins with.
    pub(crate) fn descriptor(&self) -> Option<u32> {
        self.body("h")?.u32()
    }

    /// The path of an object that it begins with.
    pub(crate) fn object(&self) -> Option<&str> {
        self.body("o")?.text()
    }

    /// The path of a job that has ended, and its result.
    pub(crate) fn ended_job(&self) -> Option<(&str, &str)> {
        let mut reader = self.body("uoss")?;
        reader.u32()?;
        let job = reader.text()?;
        reader.text()?;
        Some((job, reader.text()?))
    }

    /// The number in the variant that it begins with.
    pub(crate) fn variant_u64(&self) -> Option<u64> {
        let mut reader = self.body("v")?;
        (reader.signature()? == "t").then(|| reader.u64())?
    }

    /// The text in the variant that it begins with.
    pub(crate) fn variant_text(&self) -> Option<&str> {
        let mut reader = self.body("v")?;
        (reader.signature()? == "s").then(|| reader.text())?
    }

    /// The bool in the variant that it begins with.
    pub(crate) fn variant_bool(&self) -> Option<bool> {
        let mut reader = self.body("v")?;
        (reader.signature()? == "b").then(|| reader.u32())?.map(|value| value != 0)
    }
}
