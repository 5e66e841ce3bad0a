//! `/logs/`: the node's own log files.

use std::io;
use std::path::{Component, Path};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use rustix::fs::{FileType, OFlags};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use serving::answer::full;
use serving::{Body, Failure};

use super::body::channel_body;
use crate::files::{self, Links};

const ROOT: &str = "/var/log";
const PIECE: usize = 64 << 10;

/// Serves a file or a directory's listing below `/var/log`.
pub(super) async fn serve(below: &str) -> Result<Response<Body>, Failure> {
    serve_from(Path::new(ROOT), below).await
}

/// Writes the log of a service that has a file of its own, as upstream looks for one; whether there is one.
pub(super) async fn copy_log(service: &str, to: &mpsc::Sender<Bytes>) -> bool {
    copy_from(Path::new(ROOT), service, to).await
}

async fn copy_from(root: &Path, service: &str, to: &mpsc::Sender<Bytes>) -> bool {
    for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
        let root = root.to_owned();
        let found = tokio::task::spawn_blocking(move || find(&root, Path::new(&name))).await;
        if let Ok(Ok(Found::File(file))) = found {
            send(tokio::fs::File::from_std(file), to).await;
            return true;
        }
    }
    false
}

/// Sends a file, as fast as its reader takes it.
async fn send(mut file: tokio::fs::File, to: &mpsc::Sender<Bytes>) {
    let mut buffer = bytes::BytesMut::with_capacity(PIECE);
    while matches!(file.read_buf(&mut buffer).await, Ok(n) if n > 0) {
        if to.send(buffer.split().freeze()).await.is_err() {
            return;
        }
        buffer.reserve(PIECE);
    }
}

/// A file or a directory below the logs.
enum Found {
    File(std::fs::File),
    Listing(Vec<String>),
}

async fn serve_from(root: &Path, below: &str) -> Result<Response<Body>, Failure> {
    let not_found = || Failure::new(StatusCode::NOT_FOUND, "404 page not found");
    let below = Path::new(below.trim_start_matches('/')).to_owned();
    if below.components().any(|c| !matches!(c, Component::Normal(_))) {
        return Err(Failure::bad_request("invalid URL path"));
    }
    let root = root.to_owned();
    let found = tokio::task::spawn_blocking(move || find(&root, &below)).await;
    match found.map_err(|_| not_found())?.map_err(|_| not_found())? {
        Found::Listing(names) => Ok(listing(&names)),
        Found::File(file) => {
            let file = tokio::fs::File::from_std(file);
            let (sender, body) = channel_body();
            tokio::spawn(async move { send(file, &sender).await });
            Ok(Response::new(body))
        }
    }
}

/// Opens a file or lists a directory. A link may not lead out of the logs.
///
/// DIFFERENCE: upstream follows any link: who may write to the logs reads the node as root.
fn find(root: &Path, below: &Path) -> io::Result<Found> {
    let found = files::open(files::root(root)?, below, OFlags::PATH, Links::Beneath)?;
    if files::kind(&found)? != FileType::Directory {
        return Ok(Found::File(files::readable(&found)?));
    }
    let dir = files::reopen(&found, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut names: Vec<String> = files::names(&dir)?
        .into_iter()
        .map(|(name, kind)| {
            let slash = if kind == FileType::Directory { "/" } else { "" };
            format!("{}{slash}", name.to_string_lossy())
        })
        .collect();
    names.sort();
    Ok(Found::Listing(names))
}

fn listing(names: &[String]) -> Response<Body> {
    let mut page =
        String::from("<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n");
    for name in names {
        let text = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
        page.extend(["<a href=\"", &text, "\">", &text, "</a>\n"]);
    }
    page.push_str("</pre>\n");
    let mut response = Response::new(full(page));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
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
        std::os::unix::fs::symlink("a.log", dir.path().join("near")).unwrap();
        assert_eq!(get("near").await, "hello");
        let (fifo, mode) = (FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), fifo, mode, 0).unwrap();
        assert_eq!(get("pipe").await, "404");
        std::fs::write(dir.path().join("sub/sub.log"), "below").unwrap();
        for (service, expected) in
            [("a", Some("hello")), ("sub", Some("below")), ("..", None), ("pipe", None)]
        {
            let (sender, mut receiver) = mpsc::channel(8);
            assert_eq!(copy_from(dir.path(), service, &sender).await, expected.is_some(), "{service}");
            drop(sender);
            assert_eq!(receiver.recv().await.as_deref(), expected.map(str::as_bytes), "{service}");
        }
    }
}
