//! The subject that a certificate or a certificate request names.
//!
//! Every component must read the same name and the same groups, and so must programs in Go that get the same bytes: what
//! one of them could read differently is refused, never left out.

use thiserror::Error;

/// The parts of a subject that Kubernetes reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The common name, which is the user; "" if there is none.
    pub common_name: String,
    /// The organizations, which are the groups.
    pub organizations: Vec<String>,
    /// The user's uid, where upstream puts one.
    pub uid: Option<String>,
}

/// Why a subject cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SubjectError {
    /// It is no DER of a `Name`.
    #[error("the subject is malformed")]
    Malformed,
    /// An attribute is no text, or of a kind that has no one reading.
    #[error("the subject has an attribute of unsupported string type {0}")]
    Type(u8),
    /// An attribute's text does not fit its type.
    #[error("the subject has an attribute with an invalid {0}")]
    Text(&'static str),
    /// Of several, each reader takes another.
    ///
    /// `DIFFERENCE`: Go takes the last common name.
    #[error("the subject has more than one {0}")]
    Several(&'static str),
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
/// 1.3.6.1.4.1.57683.2
const UID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 6;

/// Reads the DER of a `Name` (RFC 5280, section 4.1.2.4).
pub fn subject(der: &[u8]) -> Result<Subject, SubjectError> {
    let mut found = Subject::default();
    let mut common_name = None;
    let mut rest = der;
    let mut names = of_tag(&mut rest, SEQUENCE)?;
    nothing(rest)?;
    while !names.is_empty() {
        let mut attributes = of_tag(&mut names, SET)?;
        if attributes.is_empty() {
            return Err(SubjectError::Malformed);
        }
        while !attributes.is_empty() {
            let mut attribute = of_tag(&mut attributes, SEQUENCE)?;
            let kind = of_tag(&mut attribute, OBJECT_IDENTIFIER)?;
            let (tag, value) = element(&mut attribute)?;
            nothing(attribute)?;
            match kind {
                COMMON_NAME => once(&mut common_name, "common name", text(tag, value)?)?,
                ORGANIZATION => found.organizations.push(text(tag, value)?),
                UID => once(&mut found.uid, "uid", text(tag, value)?)?,
                _ => {}
            }
        }
    }
    found.common_name = common_name.unwrap_or_default();
    Ok(found)
}

fn once(place: &mut Option<String>, what: &'static str, value: String) -> Result<(), SubjectError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SubjectError::Several(what)),
    }
}

fn nothing(rest: &[u8]) -> Result<(), SubjectError> {
    if rest.is_empty() { Ok(()) } else { Err(SubjectError::Malformed) }
}

/// The content of the next element, which has this tag.
fn of_tag<'a>(input: &mut &'a [u8], tag: u8) -> Result<&'a [u8], SubjectError> {
    match element(input)? {
        (found, content) if found == tag => Ok(content),
        _ => Err(SubjectError::Malformed),
    }
}

/// The next element of DER: its tag and its content.
fn element<'a>(input: &mut &'a [u8]) -> Result<(u8, &'a [u8]), SubjectError> {
    let (tag, first, mut rest) = match **input {
        [tag, first, ref rest @ ..] if tag & 0x1f != 0x1f => (tag, first, rest),
        _ => return Err(SubjectError::Malformed),
    };
    let mut length = usize::from(first);
    if first >= 0x80 {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) {
            return Err(SubjectError::Malformed);
        }
        let (bytes, after) = rest.split_at_checked(count).ok_or(SubjectError::Malformed)?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        // DER has one way to write a length.
        if bytes.first() == Some(&0) || length < 0x80 {
            return Err(SubjectError::Malformed);
        }
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length).ok_or(SubjectError::Malformed)?;
    *input = after;
    Ok((tag, content))
}

/// The text of a string type, as Go's `crypto/x509` reads it.
fn text(tag: u8, value: &[u8]) -> Result<String, SubjectError> {
    let ascii = |what: &'static str, allowed: fn(u8) -> bool| {
        if value.iter().all(|b| allowed(*b)) {
            Ok(value.iter().map(|b| char::from(*b)).collect())
        } else {
            Err(SubjectError::Text(what))
        }
    };
    match tag {
        12 => String::from_utf8(value.to_vec()).map_err(|_| SubjectError::Text("UTF8String")),
        18 => ascii("NumericString", |b| b.is_ascii_digit() || b == b' '),
        19 => ascii("PrintableString", |b| b.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&b)),
        // T.61 is hardly ever meant: the bytes are Latin-1.
        20 => Ok(value.iter().map(|b| char::from(*b)).collect()),
        22 => ascii("IA5String", |b| b.is_ascii()),
        30 => bmp(value),
        other => Err(SubjectError::Type(other)),
    }
}

/// Two bytes a character, with or without a terminating zero.
fn bmp(value: &[u8]) -> Result<String, SubjectError> {
    const WHAT: SubjectError = SubjectError::Text("BMPString");
    let value = value.strip_suffix(&[0, 0]).filter(|_| value.len().is_multiple_of(2)).unwrap_or(value);
    if !value.len().is_multiple_of(2) {
        return Err(WHAT);
    }
    let units = value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    // Everybody reads half a character differently.
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| WHAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut all = vec![tag];
        match u8::try_from(content.len()) {
            Ok(n) if n < 0x80 => all.push(n),
            Ok(n) => all.extend([0x81, n]),
            Err(_) => {
                all.push(0x82);
                all.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        all.extend(content);
        all
    }

    fn name(attributes: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let all: Vec<u8> = attributes
            .iter()
            .flat_map(|(kind, tag, value)| {
                tlv(SET, &tlv(SEQUENCE, &[tlv(6, kind), tlv(*tag, value)].concat()))
            })
            .collect();
        tlv(SEQUENCE, &all)
    }

    #[test]
    fn texts() {
        let check = |tag: u8, value: &[u8], expected: Result<&str, SubjectError>| {
            let got = subject(&name(&[(COMMON_NAME, 12, b"me"), (ORGANIZATION, tag, value)]));
            let got = got.map(|s| s.organizations[0].clone());
            assert_eq!(got.as_deref(), expected.as_ref().map(|s| *s), "{tag} {value:?}");
        };
        let masters = "system:masters";
        let wide: Vec<u8> = masters.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for tag in [12, 19, 20, 22] {
            check(tag, masters.as_bytes(), Ok(masters));
        }
        check(30, &wide, Ok(masters));
        check(30, &[&wide[..], &[0, 0]].concat(), Ok(masters));
        check(30, &wide[1..], Err(SubjectError::Text("BMPString")));
        check(30, &[0xd8, 0], Err(SubjectError::Text("BMPString")));
        check(18, b"12 3", Ok("12 3"));
        check(18, b"a", Err(SubjectError::Text("NumericString")));
        check(19, b"a_b", Err(SubjectError::Text("PrintableString")));
        check(20, b"M\xfcller", Ok("Müller"));
        check(22, b"M\xfc", Err(SubjectError::Text("IA5String")));
        check(12, b"M\xfc", Err(SubjectError::Text("UTF8String")));
        check(12, "Müller".as_bytes(), Ok("Müller"));
        // UniversalString, an integer, a constructed UTF8String.
        check(28, b"\0\0\0a", Err(SubjectError::Type(28)));
        check(2, &[1], Err(SubjectError::Type(2)));
        check(0x2c, &tlv(12, b"a"), Err(SubjectError::Type(0x2c)));
    }

    #[test]
    fn names() {
        let check = |der: &[u8], expected: Result<(&str, &[&str], Option<&str>), SubjectError>| {
            let got = subject(der);
            let shown = got.as_ref().map(|s| {
                let groups: Vec<&str> = s.organizations.iter().map(String::as_str).collect();
                (s.common_name.as_str(), groups, s.uid.as_deref())
            });
            let expected = expected.as_ref().map(|(name, groups, uid)| (*name, groups.to_vec(), *uid));
            assert_eq!(shown, expected, "{der:?}");
        };
        check(&name(&[]), Ok(("", &[], None)));
        check(
            &name(&[
                (ORGANIZATION, 12, b"a"),
                (COMMON_NAME, 19, b"me"),
                (ORGANIZATION, 12, b"b"),
                (UID, 12, b"u"),
            ]),
            Ok(("me", &["a", "b"], Some("u"))),
        );
        // A country in a type that is not read.
        check(&name(&[(&[0x55, 4, 6], 28, b"\0\0\0a"), (COMMON_NAME, 12, b"me")]), Ok(("me", &[], None)));
        let long = vec![b'x'; 300];
        check(&name(&[(COMMON_NAME, 12, &long)]), Ok((std::str::from_utf8(&long).unwrap(), &[], None)));
        let two = name(&[(COMMON_NAME, 12, b"me"), (COMMON_NAME, 12, b"you")]);
        check(&two, Err(SubjectError::Several("common name")));
        check(&name(&[(UID, 12, b"1"), (UID, 12, b"2")]), Err(SubjectError::Several("uid")));
        let malformed: [&[u8]; 8] = [
            b"",
            &[0x30],
            &[0x30, 1],
            &[0x30, 0, 0],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 0],
            &[0x30, 2, 0x31, 0],
            &[0x30, 4, 0x31, 2, 0x30, 0],
        ];
        for der in malformed {
            check(der, Err(SubjectError::Malformed));
        }
        // A part that cannot be read does not take with it the parts that follow.
        let mut broken =
            name(&[(COMMON_NAME, 12, b"me"), (ORGANIZATION, 12, b"a"), (ORGANIZATION, 12, b"b")]);
        let at = broken.iter().rposition(|b| *b == 0x31).unwrap();
        broken[at] = 0x32;
        check(&broken, Err(SubjectError::Malformed));
    }
}
