//! `/logs/`: the node's own log files.

use std::path::{Component, Path};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use tokio::io::AsyncReadExt;

use super::{Body, Failure, channel_body, full};

const ROOT: &str = "/var/log";
const PIECE: usize = 64 << 10;

/// Serves a file or a directory's listing below `/var/log`.
pub(super) async fn serve(below: &str) -> Result<Response<Body>, Failure> {
    serve_from(Path::new(ROOT), below).await
}

async fn serve_from(root: &Path, below: &str) -> Result<Response<Body>, Failure> {
    let not_found = || Failure::new(StatusCode::NOT_FOUND, "404 page not found");
    let below = Path::new(below.trim_start_matches('/'));
    if below.components().any(|c| !matches!(c, Component::Normal(_))) {
        return Err(Failure::bad_request("invalid URL path"));
    }
    let path = root.join(below);
    // A link may not lead out of the logs.
    let real = tokio::fs::canonicalize(&path).await.map_err(|_| not_found())?;
    if !tokio::fs::canonicalize(root).await.is_ok_and(|root| real.starts_with(root)) {
        return Err(not_found());
    }
    let metadata = tokio::fs::metadata(&real).await.map_err(|_| not_found())?;
    if metadata.is_dir() {
        return listing(&real).await;
    }
    if !metadata.is_file() {
        return Err(not_found());
    }
    let mut file = tokio::fs::File::open(&real).await.map_err(|_| not_found())?;
    let (sender, body) = channel_body();
    tokio::spawn(async move {
        let mut buffer = bytes::BytesMut::with_capacity(PIECE);
        while matches!(file.read_buf(&mut buffer).await, Ok(n) if n > 0) {
            if sender.send(buffer.split().freeze()).await.is_err() {
                return;
            }
            buffer.reserve(PIECE);
        }
    });
    Ok(Response::new(body))
}

async fn listing(dir: &Path) -> Result<Response<Body>, Failure> {
    let failed = |e: std::io::Error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string());
    let mut names = Vec::new();
    let mut entries = tokio::fs::read_dir(dir).await.map_err(failed)?;
    while let Some(entry) = entries.next_entry().await.map_err(failed)? {
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().await.is_ok_and(|t| t.is_dir()) {
            name.push('/');
        }
        names.push(name);
    }
    names.sort();
    let mut page =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        let text = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        page.extend(["<a href=\"", &text, "\">", &text, "</a>\n"]);
    }
    page.push_str("</pre>\n");
    let mut response = Response::new(full(page));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn files_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.log"), "hello").unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
        let get = async |path: &str| match serve_from(dir.path(), path).await {
            Ok(r) => String::from_utf8(r.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap(),
            Err(e) => e.code.as_u16().to_string(),
        };
        assert_eq!(get("a.log").await, "hello");
        assert!(get("").await.contains("<a href=\"sub/\">sub/</a>"));
        assert_eq!(get("out/hostname").await, "404");
        assert_eq!(get("../x").await, "400");
        assert_eq!(get("none").await, "404");
    }
}
