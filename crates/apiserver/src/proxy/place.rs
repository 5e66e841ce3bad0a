//! Answers of backends as their readers see them: links of the same host lead through the proxy (upstream:
//! `apimachinery/pkg/util/proxy/transport.go`).

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use futures::{StreamExt, TryStreamExt};
use http::header::{self, HeaderMap, HeaderValue};
use http::response::Parts;
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};

use super::html;
use super::link::{self, Link};
use crate::front::{Body, BodyError, full};

/// The longest HTML page whose links are rewritten; a longer one is passed on as it is. DIFFERENCE: upstream keeps a page of
/// any length in memory.
const MAX_HTML: usize = 4 << 20;
/// The longest page that may come of it; a page whose links would make it longer is passed on as it is.
const MAX_REWRITTEN: usize = 4 * MAX_HTML;

/// Where a proxied page lies, as its reader sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The scheme of rewritten links; "" for that of the page.
    pub(super) scheme: &'static str,
    /// The host of rewritten links; "" for that of the page.
    pub(super) host: String,
    /// The path in front of the backend's paths, not escaped, without a trailing slash.
    pub(super) prefix: Vec<u8>,
    /// The backend's authorities: with its port, and without it if that is the usual one.
    pub(super) backend: [String; 2],
    /// The `Host` header of the request.
    pub(super) asked: String,
}

impl Place {
    /// The place of an aggregated server's pages, before whose paths there is nothing.
    pub(super) fn of_server(authority: String) -> Self {
        let backend = [authority.clone(), authority.trim_end_matches(":443").to_owned()];
        let asked = authority.clone();
        Self { scheme: "https", host: authority, prefix: Vec::new(), backend, asked }
    }

    /// The path of a page of the backend as its reader sees it, escaped: `X-Forwarded-Uri`.
    pub(super) fn outer(&self, path: &[u8]) -> String {
        link::escape(&link::join(&self.prefix, path))
    }

    /// A link of the backend as it must read outside: absolute paths of the same host go through the proxy.
    ///
    /// # Errors
    /// It is no link.
    pub(super) fn rewrite(&self, text: &str) -> Result<String, String> {
        let mut link = Link::parse(text)?;
        let other = !link.host.is_empty() && link.host != self.asked && !self.backend.contains(&link.host);
        if other || !link.path.starts_with(b"/") {
            return Ok(link.text());
        }
        // The reader's own host stays where nothing is known of another.
        if link.host != self.asked || !self.scheme.is_empty() || !self.host.is_empty() {
            link = link.at(self.scheme, &self.host);
        }
        // A backend that already knows its prefix writes it itself.
        if !link.path.starts_with(&self.prefix) {
            link.path = link::join(&self.prefix, &link.path);
        }
        Ok(link.text())
    }

    /// Rewrites the links of an answer: its `Location`, or else a page's.
    ///
    /// # Errors
    /// The `Location` is no link, or the page's encoding is not what it says.
    pub(super) async fn rewrite_answer<B>(&self, mut parts: Parts, body: B) -> Result<(Parts, Body), String>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Sync + Unpin + 'static,
    {
        for name in ["credentials", "headers", "methods", "origin"] {
            parts.headers.remove(format!("access-control-allow-{name}"));
        }
        let location = parts.headers.get(header::LOCATION).map(|l| String::from_utf8_lossy(l.as_bytes()));
        if let Some(location) = location.filter(|l| !l.is_empty()) {
            let wrong = |why: String| format!("error trying to parse Location header: {why}");
            let link = self.rewrite(&location).map_err(wrong)?;
            let link = HeaderValue::from_str(&link).map_err(|e| wrong(e.to_string()))?;
            parts.headers.insert(header::LOCATION, link);
            return Ok((parts, Body::stream(body.map_err(Into::into))));
        }
        match encoding(&parts.headers) {
            Some(encoding) => self.rewrite_page(parts, body, encoding).await,
            None => Ok((parts, Body::stream(body.map_err(Into::into)))),
        }
    }

    async fn rewrite_page<B>(
        &self,
        mut parts: Parts,
        body: B,
        encoding: Encoding,
    ) -> Result<(Parts, Body), String>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + Sync + Unpin + 'static,
    {
        let mut body = body;
        let mut page = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| e.into().to_string())?;
            if let Some(data) = frame.data_ref() {
                page.extend_from_slice(data);
            }
            if page.len() > MAX_HTML {
                let begin = futures::stream::iter([Ok(Frame::data(Bytes::from(page)))]);
                let rest = TryStreamExt::map_err(BodyStream::new(body), Into::into);
                return Ok((parts, Body::stream(StreamBody::new(begin.chain(rest)))));
            }
        }
        // The answer to HEAD says how long the page is, and has none.
        if page.is_empty() {
            return Ok((parts, full(Bytes::new())));
        }
        // Packing a page takes longer than others may wait for their turn.
        let (place, page) = (self.clone(), Bytes::from(page));
        let of = page.clone();
        let rewriting = tokio::task::spawn_blocking(move || place.rewritten(&of, encoding));
        let rewritten = rewriting.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let Some(rewritten) = rewritten else { return Ok((parts, full(page))) };
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok((parts, full(Bytes::from(rewritten))))
    }

    /// A page with its links rewritten; nothing if it is too long, or would become so.
    fn rewritten(&self, page: &[u8], encoding: Encoding) -> std::io::Result<Option<Vec<u8>>> {
        let Some(plain) = encoding.decode(page)? else { return Ok(None) };
        let rewritten = html::rewrite(&plain, MAX_REWRITTEN, |link| self.rewrite(link).ok());
        rewritten.map(|rewritten| encoding.encode(&rewritten)).transpose()
    }
}

/// The encoding of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    Gzip,
    Deflate,
}

/// The encoding of an answer that is an HTML page of no more than the length that is rewritten; nothing for others, and for
/// encodings that nobody here knows.
fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).unwrap_or_default();
    let kind = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default();
    let short = text(header::CONTENT_LENGTH).parse::<usize>().map_or(true, |length| length <= MAX_HTML);
    if kind.trim() != "text/html" || !short {
        return None;
    }
    match text(header::CONTENT_ENCODING) {
        "" => Some(Encoding::Plain),
        "gzip" => Some(Encoding::Gzip),
        "deflate" => Some(Encoding::Deflate),
        _ => None,
    }
}

impl Encoding {
    /// The page itself; nothing if it is too long to be rewritten.
    fn decode(self, page: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        let mut plain = Vec::new();
        let most = MAX_HTML as u64 + 1;
        match self {
            Self::Plain => plain.extend_from_slice(page),
            Self::Gzip => {
                GzDecoder::new(page).take(most).read_to_end(&mut plain)?;
            }
            Self::Deflate => {
                DeflateDecoder::new(page).take(most).read_to_end(&mut plain)?;
            }
        }
        Ok(Some(plain).filter(|plain| plain.len() <= MAX_HTML))
    }

    fn encode(self, plain: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(plain.to_vec()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain)?;
                encoder.finish()
            }
            Self::Deflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(plain)?;
                encoder.finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    const PREFIX: &str = "/proxy/node/node1:10250";

    /// A place below [`PREFIX`] of a backend.
    fn place(scheme: &'static str, host: &str, backend: &str, asked: &str) -> Place {
        Place {
            scheme,
            host: host.into(),
            prefix: PREFIX.into(),
            backend: [backend.to_owned(), backend.to_owned()],
            asked: asked.into(),
        }
    }

    async fn rewritten(place: &Place, answer: Response<Vec<u8>>) -> Result<(HeaderMap, Vec<u8>), String> {
        let (parts, body) = answer.into_parts();
        let body = http_body_util::Full::new(Bytes::from(body));
        let (parts, body) = place.rewrite_answer(parts, body).await?;
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes().to_vec();
        Ok((parts.headers, body))
    }

    fn answer(kind: &str, encoding: &str, body: &[u8]) -> Response<Vec<u8>> {
        let mut answer = Response::new(body.to_vec());
        for (name, value) in [(header::CONTENT_TYPE, kind), (header::CONTENT_ENCODING, encoding)] {
            if !value.is_empty() {
                answer.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        answer.headers_mut().insert(header::CONTENT_LENGTH, body.len().to_string().parse().unwrap());
        answer
    }

    /// Upstream's cases (`TestProxyTransport`): pages.
    #[tokio::test]
    async fn pages() {
        let mine = place("http", "foo.com", "mynode.com", "mynode.com");
        let https = Place { scheme: "https", prefix: "/proxy/node/node1:8080".into(), ..mine.clone() };
        let own = place("http", "foo.com", "foo.com", "foo.com");
        let check = async |place: &Place, kind: &str, page: &str, expected: &str| {
            let (_, body) = rewritten(place, answer(kind, "", page.as_bytes())).await.unwrap();
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        };
        let log = |link: &str| {
            format!("<pre><a href=\"kubelet.log\">kubelet.log</a><a href=\"{link}\">google.log</a></pre>")
        };
        let there = log("http://foo.com/proxy/node/node1:10250/google.log");
        for kind in ["text/html", "text/html; charset=utf-8"] {
            check(&mine, kind, &log("/google.log"), &there).await;
            let whole = |inner: &str| format!("<html><header></header><body>{inner}</body></html>");
            check(&mine, kind, &whole(&log("/google.log")), &whole(&there)).await;
        }
        check(
            &mine,
            "text/html",
            &log("/google.log/"),
            &log("http://foo.com/proxy/node/node1:10250/google.log/"),
        )
        .await;
        check(&mine, "text/plain", &log("/google.log"), &log("/google.log")).await;
        check(
            &https,
            "text/html",
            &log("/google.log"),
            &log("https://foo.com/proxy/node/node1:8080/google.log"),
        )
        .await;
        check(&own, "text/html", &there, &there).await;
        check(
            &mine,
            "text/html",
            "<pre><img src=\"kubernetes.jpg\"/><img src=\"/kubernetes_abs.jpg\"/></pre>",
            "<pre><img src=\"kubernetes.jpg\"/><img src=\"http://foo.com/proxy/node/node1:10250/kubernetes_abs.jpg\"/></pre>",
        )
        .await;
        let script = |at: &str| format!("<script src=\"http://{at}/kubernetes.js\"/>");
        check(&mine, "text/html", &script("google.com"), &script("google.com")).await;
        check(&mine, "text/html", &script("mynode.com"), &script("foo.com/proxy/node/node1:10250")).await;
        // An aggregated server, before which there is nothing.
        let aggregated = Place::of_server("10.0.0.1:443".into());
        check(&aggregated, "text/html", "<a href=\"/x\">", "<a href=\"https://10.0.0.1:443/x\">").await;
    }

    /// Upstream's cases (`TestProxyTransport`): redirects.
    #[tokio::test]
    async fn redirects() {
        let check = async |place: &Place, to: &str, expected: Result<&str, &str>| {
            let mut answer = answer("text/html", "", b"<a href=\"/x\">");
            answer.headers_mut().insert(header::LOCATION, to.parse().unwrap());
            let got = rewritten(place, answer).await;
            if let Ok((_, body)) = &got {
                assert_eq!(
                    body == b"<a href=\"/x\">",
                    !to.is_empty(),
                    "a page that leads elsewhere stays as it is"
                );
            }
            let got = got.map(|(headers, _)| headers[header::LOCATION].to_str().unwrap().to_owned());
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{to}");
        };
        let mine = place("http", "foo.com", "mynode.com", "mynode.com");
        let bare = place("", "", "mynode.com", "10.0.0.1:8001");
        for (tail, escaped) in
            [("", ""), ("%00<script>alert(1)</script>/", "%00%3Cscript%3Ealert%281%29%3C/script%3E/")]
        {
            let through = format!("http://foo.com{PREFIX}/redirected/target/{escaped}");
            check(&mine, &format!("/redirected/target/{tail}"), Ok(&through)).await;
            check(&mine, &format!("http://mynode.com/redirected/target/{tail}"), Ok(&through)).await;
            let other = format!("http://example.com/redirected/target/{escaped}");
            check(&mine, &format!("http://example.com/redirected/target/{tail}"), Ok(&other)).await;
            let asked = format!("http://10.0.0.1:8001{PREFIX}/redirected/target/{escaped}");
            check(&bare, &format!("http://10.0.0.1:8001/redirected/target/{tail}"), Ok(&asked)).await;
        }
        check(&bare, "/x?q=1#f", Ok(&format!("{PREFIX}/x?q=1#f"))).await;
        check(&bare, "//10.0.0.1:8001/x", Ok(&format!("//10.0.0.1:8001{PREFIX}/x"))).await;
        check(&bare, "http://mynode.com/a/../b", Ok(&format!("{PREFIX}/b"))).await;
        check(&bare, &format!("{PREFIX}/x"), Ok(&format!("{PREFIX}/x"))).await;
        check(&bare, "x/y", Ok("x/y")).await;
        check(&bare, "", Ok("")).await;
        let wrong = "error trying to parse Location header: parse \"/%zz\": invalid URL escape \"%zz\"";
        check(&bare, "/%zz", Err(wrong)).await;
    }

    /// Upstream's `TestRewriteResponse`, with links.
    #[tokio::test]
    async fn encodings() {
        let mine = place("http", "foo.com", "mynode.com", "mynode.com");
        let text = |link: &str, n: usize| format!("<a href=\"{link}\">").repeat(n);
        for (name, encoding) in
            [("", Encoding::Plain), ("gzip", Encoding::Gzip), ("deflate", Encoding::Deflate)]
        {
            for n in [1, 4097] {
                let page = encoding.encode(text("/x", n).as_bytes()).unwrap();
                let (headers, body) = rewritten(&mine, answer("text/html", name, &page)).await.unwrap();
                let body = encoding.decode(&body).unwrap().unwrap();
                assert_eq!(String::from_utf8(body).unwrap(), text(&format!("http://foo.com{PREFIX}/x"), n));
                assert!(!headers.contains_key(header::CONTENT_LENGTH));
            }
        }
        let check = async |name: &str, body: &[u8], expected: Option<&[u8]>| {
            let got = rewritten(&mine, answer("text/html", name, body)).await.ok().map(|(_, body)| body);
            assert!(got.as_deref() == expected, "{name}");
        };
        check("br", b"<a href=\"/x\">", Some(b"<a href=\"/x\">")).await;
        check("gzip", b"nonsense", None).await;
        check("gzip", b"", Some(b"")).await;
        // Too long a page stays as it is, also one that is short only as long as it is packed.
        let long = text("/x", MAX_HTML / 8).into_bytes();
        check("", &long, Some(&long)).await;
        let mut unnamed = answer("text/html", "", &long);
        unnamed.headers_mut().remove(header::CONTENT_LENGTH);
        assert!(rewritten(&mine, unnamed).await.unwrap().1 == long);
        let packed = Encoding::Gzip.encode(&long).unwrap();
        check("gzip", &packed, Some(&packed)).await;
    }

    /// Upstream's cases (`TestProxyTransport`): `X-Forwarded-Uri`.
    #[test]
    fn outer_paths() {
        let check = |path: &str, expected: &str| {
            assert_eq!(place("", "", "", "").outer(path.as_bytes()), format!("{PREFIX}{expected}"));
        };
        check("/logs/log.log", "/logs/log.log");
        check("/", "/");
        check("/any/path/", "/any/path/");
        check(
            "/logs/log.log\0<script>alert(1)</script>",
            "/logs/log.log%00%3Cscript%3Ealert%281%29%3C/script%3E",
        );
    }
}
