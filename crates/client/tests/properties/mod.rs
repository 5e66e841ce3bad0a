//! Properties that hold of any bytes; each is also a fuzz target.

use ferrokube_client::subject::{Subject, subject};
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

/// A property, and the name of its fuzz target.
pub type Property = (&'static str, fn(&[u8]));

/// Every property, by the name of its fuzz target.
#[allow(dead_code, reason = "the fuzz targets name them one by one")]
pub const ALL: [Property; 1] = [("x509_subject", x509_subject)];

fn tlv(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut all = vec![tag];
    match content.len() {
        n if n < 0x80 => all.push(length[3]),
        n if n < 0x100 => all.extend([0x81, length[3]]),
        n if n < 0x1_0000 => all.extend([0x82, length[2], length[3]]),
        _ => all.extend([&[0x84], &length[..]].concat()),
    }
    all.extend(content);
    all
}

/// A key that is none, and an algorithm that signs nothing: nobody looks at them here.
const ALGORITHM: &[u8] = &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const BITS: &[u8] = &[3, 2, 0, 1];

fn certificate(name: &[u8]) -> Vec<u8> {
    let time = tlv(0x17, &[b"250101000000Z"]);
    let key = tlv(0x30, &[ALGORITHM, BITS]);
    let validity = tlv(0x30, &[&time, &time]);
    let version = [0xa0, 3, 2, 1, 2];
    let inner = tlv(0x30, &[&version, &[2, 1, 1], ALGORITHM, &[0x30, 0], &validity, name, &key]);
    tlv(0x30, &[&inner, ALGORITHM, BITS])
}

fn request(name: &[u8]) -> Vec<u8> {
    let key = tlv(0x30, &[ALGORITHM, BITS]);
    let inner = tlv(0x30, &[&[2, 1, 0], name, &key, &[0xa0, 0]]);
    tlv(0x30, &[&inner, ALGORITHM, BITS])
}

/// Whatever stands as the subject of a certificate and of a request for one, both are read as the same user with the
/// same groups, or refused. A name that another parser reads there is not left out.
pub fn x509_subject(name: &[u8]) {
    let (certificate, request) = (certificate(name), request(name));
    let in_certificate = X509Certificate::from_der(&certificate).ok().map(|(_, c)| c);
    let in_request = X509CertificationRequest::from_der(&request).ok().map(|(_, r)| r);
    let of_certificate = in_certificate.as_ref().map(|c| c.subject());
    let of_request = in_request.as_ref().map(|r| &r.certification_request_info.subject);
    let read = |name: Option<&X509Name<'_>>| name.and_then(|n| subject(n.as_raw()).ok());
    if let (Some(one), Some(other)) = (read(of_certificate), read(of_request)) {
        assert_eq!(one, other);
    }
    for name in [of_certificate, of_request].into_iter().flatten() {
        let Ok(Subject { common_name, organizations, .. }) = subject(name.as_raw()) else { continue };
        let names: Vec<_> = name.iter_common_name().collect();
        assert!(names.len() <= 1, "a name vanished");
        let there: Vec<_> = name.iter_organization().collect();
        assert_eq!(there.len(), organizations.len(), "a group vanished");
        let named = !names.is_empty();
        let ours = [&common_name].into_iter().filter(|_| named).chain(&organizations);
        for (other, ours) in names.into_iter().chain(there).zip(ours) {
            if let Ok(text) = other.as_str() {
                assert_eq!(text, ours);
            }
        }
    }
}
