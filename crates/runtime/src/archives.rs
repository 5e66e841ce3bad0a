//! The work for which CRI has no calls: import and export of images, and the removal of one name of several.
//! A socket of our own beside that of CRI: a client sends a request in JSON, with the descriptor of the archive's file if
//! there is one, and gets an answer in JSON.

use std::fs::{self, File, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use component::Shutdown;
use images::{Image, Images};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;

/// The longest request, in bytes.
const LONGEST: usize = 64 << 10;
/// The time in which a client sends its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Request {
    /// Import the images of the file that comes with it.
    Import,
    /// Write these images to the file that comes with it.
    Export(Vec<String>),
    /// Remove this name, and the image if that was its last.
    Remove(String),
}

/// The answer: the names of what was imported, exported or removed, or one sentence.
type Answer = Result<Vec<String>, String>;

/// Serves at a socket until `shutdown`.
pub(crate) fn serve(path: &Path, images: Images, shutdown: &Shutdown) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let (stop, path) = (shutdown.clone(), path.to_owned());
    shutdown.spawn(async move {
        let _ = stop.run(accept(&listener, &images)).await;
        let _ = fs::remove_file(path);
    });
    Ok(())
}

/// Answers clients one after the other: an archive is work for all the machine has.
async fn accept(listener: &UnixListener, images: &Images) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "clients with archives cannot be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Err(error) = converse(stream, images).await {
            tracing::debug!(%error, "a client with an archive went away");
        }
    }
}

async fn converse(stream: tokio::net::UnixStream, images: &Images) -> io::Result<()> {
    let stream = stream.into_std()?;
    let received = tokio::task::spawn_blocking(move || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let received = receive(&stream)?;
        io::Result::Ok((stream, received))
    });
    let (mut stream, (request, file)) = received.await.map_err(io::Error::other)??;
    let answer: Answer = match (request, file.map(File::from)) {
        (Request::Import, Some(file)) => match images.import(file, false).await {
            Ok(all) => Ok(names(&all)),
            Err(error) => Err(error.to_string()),
        },
        (Request::Export(names), Some(file)) => match images.export(&names, file).await {
            Ok(()) => Ok(names),
            Err(error) => Err(error.to_string()),
        },
        (Request::Import | Request::Export(_), None) => Err("the request has no file".to_owned()),
        (Request::Remove(name), _) => match images.remove(&name).await {
            Ok(true) => Ok(vec![name]),
            Ok(false) => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        },
    };
    let text = serde_json::to_vec(&answer)?;
    let sent = tokio::task::spawn_blocking(move || stream.write_all(&text));
    sent.await.map_err(io::Error::other)?
}

fn receive(stream: &UnixStream) -> io::Result<(Request, Option<OwnedFd>)> {
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    text.truncate(received.bytes);
    Ok((serde_json::from_slice(&text)?, file))
}

/// The names by which a user knows images that were imported: their tags, or the id of one that has none.
pub fn names(images: &[Image]) -> Vec<String> {
    let of =
        |image: &Image| if image.tags.is_empty() { vec![image.id.to_string()] } else { image.tags.clone() };
    images.iter().flat_map(of).collect()
}

/// Asks the runtime behind a socket to import the images of a file; their names.
///
/// # Errors
/// One sentence; that nobody answers is one of the system's.
pub fn import(socket: &Path, file: &File) -> io::Result<Vec<String>> {
    ask(socket, &Request::Import, Some(file))
}

/// Asks the runtime behind a socket to write images to a file.
///
/// # Errors
/// One sentence; that nobody answers is one of the system's.
pub fn export(socket: &Path, names: &[String], file: &File) -> io::Result<()> {
    ask(socket, &Request::Export(names.to_vec()), Some(file)).map(drop)
}

/// Asks the runtime behind a socket to remove a name, and the image if that was its last; false if nothing has the name.
///
/// # Errors
/// One sentence; that nobody answers is one of the system's.
pub fn remove(socket: &Path, name: &str) -> io::Result<bool> {
    Ok(!ask(socket, &Request::Remove(name.to_owned()), None)?.is_empty())
}

fn ask(socket: &Path, request: &Request, file: Option<&File>) -> io::Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)?;
    let text = serde_json::to_vec(request)?;
    if text.len() > LONGEST {
        return Err(io::Error::other("too many images at a time"));
    }
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    sendmsg(&stream, &[IoSlice::new(&text)], &mut control, SendFlags::empty())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|_| io::Error::other("the container runtime ended before it was done"))?;
    answer.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn files_go_through_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let shutdown = Shutdown::new();
        let images = Images::open(images::Settings::new(dir.path().join("images")), &shutdown).await.unwrap();
        let socket = dir.path().join("s");
        serve(&socket, images, &shutdown).unwrap();
        let archive = dir.path().join("a.tar");
        testkit::Image::busybox("test.local/a:1").unwrap().write(&archive).unwrap();
        let work = tokio::task::spawn_blocking(move || {
            let names = import(&socket, &File::open(&archive).unwrap()).unwrap();
            assert_eq!(names, ["test.local/a:1"]);
            let out = dir.path().join("b.tar");
            export(&socket, &names, &File::create(&out).unwrap()).unwrap();
            assert!(out.metadata().unwrap().len() > 500_000);
            let said = export(&socket, &["none".into()], &File::create(&out).unwrap()).unwrap_err();
            assert!(said.to_string().contains("none"), "{said}");
            let said = import(&socket, &File::open("/dev/null").unwrap()).unwrap_err();
            assert!(said.to_string().contains("archive"), "{said}");
            let said = ask(&socket, &Request::Import, None).unwrap_err();
            assert!(said.to_string().contains("has no file"), "{said}");
            assert!(remove(&socket, "test.local/a:1").unwrap());
            assert!(!remove(&socket, "test.local/a:1").unwrap());
        });
        work.await.unwrap();
        shutdown.finish().await;
    }
}
