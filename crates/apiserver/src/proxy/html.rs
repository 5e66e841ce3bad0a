//! Links in HTML pages.

/// The attributes that hold links, by element (HTML 4.01 and 5).
const LINKS: [(&str, &[&str]); 24] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
];

/// Rewrites the links of a page; everything else stays byte for byte. Nothing if more than `most` bytes would come of it:
/// links may become as long as the name that the reader has for the host.
pub(super) fn rewrite(page: &[u8], most: usize, link: impl Fn(&str) -> Option<String>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(page.len());
    let mut at = 0;
    while out.len() <= most
        && let Some(open) = page[at..].iter().position(|b| *b == b'<')
    {
        let open = at + open;
        out.extend_from_slice(&page[at..open]);
        let rest = &page[open..];
        let length = if rest.starts_with(b"<!--") {
            find(rest, b"-->").map_or(rest.len(), |n| n + 3)
        } else {
            tag_length(rest)
        };
        let tag = &rest[..length];
        tag_links(tag, most, &link, &mut out);
        at = open + length;
        // The content of these is text, not elements.
        for raw in ["script", "style"] {
            if name_of(tag).eq_ignore_ascii_case(raw) {
                let end = find_close(&page[at..], raw).unwrap_or(page.len() - at);
                out.extend_from_slice(&page[at..at + end]);
                at += end;
            }
        }
    }
    out.extend_from_slice(&page[at..]);
    Some(out).filter(|out| out.len() <= most)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

fn find_close(text: &[u8], name: &str) -> Option<usize> {
    text.windows(name.len() + 2)
        .position(|w| w.starts_with(b"</") && w[2..].eq_ignore_ascii_case(name.as_bytes()))
}

/// How long a tag is, with its brackets; a `>` in quotes does not end it.
fn tag_length(text: &[u8]) -> usize {
    let mut quote = None;
    for (i, b) in text.iter().enumerate() {
        match (quote, b) {
            (None, b'>') => return i + 1,
            (None, b'"' | b'\'') => quote = Some(*b),
            (Some(q), b) if q == *b => quote = None,
            _ => {}
        }
    }
    text.len()
}

fn name_of(tag: &[u8]) -> &str {
    let name = tag.get(1..).unwrap_or_default();
    let end = name.iter().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).unwrap_or_default()
}

/// Appends a tag with its links rewritten, up to so many bytes.
fn tag_links(tag: &[u8], most: usize, link: &impl Fn(&str) -> Option<String>, out: &mut Vec<u8>) {
    let name = name_of(tag);
    let attributes = LINKS.iter().find(|(n, _)| name.eq_ignore_ascii_case(n)).map(|(_, a)| *a);
    let Some(attributes) = attributes else {
        out.extend_from_slice(tag);
        return;
    };
    let mut at = 1 + name.len();
    let mut copied = 0;
    while at < tag.len() && out.len() <= most {
        if !tag[at].is_ascii_alphabetic() {
            at += 1;
            continue;
        }
        let start = at;
        while at < tag.len() && !matches!(tag[at], b'=' | b'>' | b'/') && !tag[at].is_ascii_whitespace() {
            at += 1;
        }
        let attribute = &tag[start..at];
        while at < tag.len() && tag[at].is_ascii_whitespace() {
            at += 1;
        }
        if tag.get(at) != Some(&b'=') {
            continue;
        }
        at += 1;
        while at < tag.len() && tag[at].is_ascii_whitespace() {
            at += 1;
        }
        let end = match tag.get(at) {
            Some(quote @ (b'"' | b'\'')) => {
                at += 1;
                at + tag[at..].iter().position(|b| b == quote).unwrap_or(tag.len() - at)
            }
            _ => {
                at + tag[at..]
                    .iter()
                    .position(|b| *b == b'>' || b.is_ascii_whitespace())
                    .unwrap_or(tag.len() - at)
            }
        };
        if attributes.iter().any(|a| attribute.eq_ignore_ascii_case(a.as_bytes()))
            && let Ok(value) = std::str::from_utf8(&tag[at..end])
            && let Some(value) = link(value)
        {
            out.extend_from_slice(&tag[copied..at]);
            out.extend_from_slice(value.as_bytes());
            copied = end;
        }
        at = end + 1;
    }
    out.extend_from_slice(&tag[copied..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites() {
        let check = |page: &str, expected: &str| {
            let below = |l: &str| l.strip_prefix('/').map(|rest| format!("/p/{rest}"));
            let got = rewrite(page.as_bytes(), expected.len(), below).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), expected);
            if let Some(less) = expected.len().checked_sub(1) {
                assert_eq!(rewrite(page.as_bytes(), less, below), None);
            }
        };
        check("plain text", "plain text");
        check(
            r#"<pre><a href="kubelet.log">k</a><a href='/google.log'>g</a></pre>"#,
            r#"<pre><a href="kubelet.log">k</a><a href='/p/google.log'>g</a></pre>"#,
        );
        check("<A HREF=/x title=\">\">t</A>", "<A HREF=/p/x title=\">\">t</A>");
        check("<img alt src=/a longdesc = \"/b\"/>", "<img alt src=/p/a longdesc = \"/p/b\"/>");
        check("<div href=\"/x\"><!-- <a href=\"/x\"> -->", "<div href=\"/x\"><!-- <a href=\"/x\"> -->");
        check(
            "<script>'<a href=\"/x\">'</script><a href=\"/y\">",
            "<script>'<a href=\"/x\">'</script><a href=\"/p/y\">",
        );
        check("<a href=\"/unfinished", "<a href=\"/p/unfinished");
        check("<", "<");
        check("<a href=", "<a href=");
    }

    #[test]
    fn a_page_does_not_grow_beyond_its_limit() {
        let host = "h".repeat(8 << 10);
        let calls = std::cell::Cell::new(0);
        let long = |_: &str| {
            calls.set(calls.get() + 1);
            Some(host.clone())
        };
        for page in ["<a href=/>".repeat(10_000), format!("<a{}>", " href=/".repeat(10_000))] {
            calls.set(0);
            assert_eq!(rewrite(page.as_bytes(), 1 << 20, long), None);
            assert!(calls.get() < 200, "{}", calls.get());
        }
    }
}
