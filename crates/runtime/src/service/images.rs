//! The image service.

use std::collections::HashMap;
use std::sync::Arc;

use cri::runtime as pb;
use futures::stream;
use images::{Credentials, Image, PullError};
use serde_json::json;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

use super::core::Core;
use super::error::whole;
use super::lists::chunks;
use super::stats;

/// The image service of CRI.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Core>);

/// An image as CRI has it.
fn shown(image: Image) -> pb::Image {
    let user = image.user.split(':').next().unwrap_or_default();
    // A user that is a number is told as one, since who runs as nobody in particular must not be root.
    let uid = user.parse::<i64>().ok();
    pb::Image {
        id: image.id.to_string(),
        size: image.size,
        uid: uid.map(|value| pb::Int64Value { value }),
        username: if uid.is_none() { user.to_owned() } else { String::new() },
        spec: (!image.annotations.is_empty()).then(|| pb::ImageSpec {
            image: image.id.to_string(),
            annotations: image.annotations.into_iter().collect(),
            ..pb::ImageSpec::default()
        }),
        repo_tags: image.tags,
        repo_digests: image.digests,
        pinned: image.pinned,
    }
}

fn credentials(auth: pb::AuthConfig) -> Credentials {
    Credentials {
        username: auth.username,
        password: auth.password,
        auth: auth.auth,
        identity_token: auth.identity_token,
        registry_token: auth.registry_token,
        server_address: auth.server_address,
    }
}

/// A pull's error; its first word is by which CRI's clients tell a registry that is away.
fn failure(error: &PullError) -> Status {
    let text = whole(error);
    match error {
        PullError::NotFound(_) => Status::not_found(text),
        PullError::Unavailable { .. } => Status::unavailable(format!("RegistryUnavailable: {text}")),
        PullError::Unauthorized { .. } => Status::new(Code::Unauthenticated, text),
        PullError::Reference { .. } => Status::invalid_argument(text),
        PullError::NoSpace { .. } => Status::resource_exhausted(text),
        _ => Status::unknown(text),
    }
}

fn name(spec: Option<pb::ImageSpec>) -> String {
    spec.map(|spec| spec.image).unwrap_or_default()
}

impl Service {
    fn list(&self, filter: Option<pb::ImageFilter>) -> Vec<pb::Image> {
        let wanted = name(filter.and_then(|filter| filter.image));
        let all = if wanted.is_empty() {
            self.0.images.list()
        } else {
            self.0.images.find(&wanted).into_iter().collect()
        };
        all.into_iter().map(shown).collect()
    }
}

#[tonic::async_trait]
impl pb::image_service_server::ImageService for Service {
    async fn list_images(
        &self,
        request: Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, Status> {
        Ok(Response::new(pb::ListImagesResponse { images: self.list(request.into_inner().filter) }))
    }

    async fn stream_images(
        &self,
        request: Request<pb::StreamImagesRequest>,
    ) -> Result<Response<BoxStream<pb::StreamImagesResponse>>, Status> {
        let all = self.list(request.into_inner().filter);
        let made = chunks(all, |images| pb::StreamImagesResponse { images });
        Ok(Response::new(Box::pin(stream::iter(made))))
    }

    async fn image_status(
        &self,
        request: Request<pb::ImageStatusRequest>,
    ) -> Result<Response<pb::ImageStatusResponse>, Status> {
        let pb::ImageStatusRequest { image, verbose } = request.into_inner();
        let Some(image) = self.0.images.find(&name(image)) else {
            return Ok(Response::new(pb::ImageStatusResponse::default()));
        };
        let mut info = HashMap::new();
        if verbose {
            let spec = self.0.images.configuration(&image.id).await.ok().flatten();
            let text = json!({ "imageSpec": spec.as_deref() }).to_string();
            info.insert("info".to_owned(), text);
        }
        Ok(Response::new(pb::ImageStatusResponse { image: Some(shown(image)), info }))
    }

    async fn pull_image(
        &self,
        request: Request<pb::PullImageRequest>,
    ) -> Result<Response<pb::PullImageResponse>, Status> {
        let pb::PullImageRequest { image, auth, .. } = request.into_inner();
        let credentials = auth.map(credentials).unwrap_or_default();
        // A pull ends with its caller; the store keeps what was fetched.
        let pulled = self.0.images.pull(&name(image), &credentials).await;
        let pulled = pulled.map_err(|error| failure(&error))?;
        Ok(Response::new(pb::PullImageResponse { image_ref: pulled.id.to_string() }))
    }

    async fn remove_image(
        &self,
        request: Request<pb::RemoveImageRequest>,
    ) -> Result<Response<pb::RemoveImageResponse>, Status> {
        let wanted = name(request.into_inner().image);
        // All names go: CRI means the image.
        if let Some(image) = self.0.images.find(&wanted) {
            let removed = self.0.images.remove(&image.id.to_string()).await;
            removed.map_err(|error| Status::unknown(whole(&error)))?;
        }
        Ok(Response::new(pb::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _: Request<pb::ImageFsInfoRequest>,
    ) -> Result<Response<pb::ImageFsInfoResponse>, Status> {
        Ok(Response::new(stats::of_images(&self.0).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_images() {
        let check = |user: &str, uid: Option<i64>, username: &str| {
            let image = Image {
                id: format!("sha256:{}", "a".repeat(64)).parse().unwrap(),
                tags: Vec::new(),
                digests: Vec::new(),
                size: 1,
                pinned: false,
                user: user.to_owned(),
                annotations: std::collections::BTreeMap::default(),
                artifact: false,
            };
            let made = shown(image);
            assert_eq!((made.uid.map(|uid| uid.value), &made.username[..]), (uid, username), "{user}");
        };
        check("", None, "");
        check("1000:5", Some(1000), "");
        check("web:web", None, "web");
    }

    #[test]
    fn failures_of_pulls() {
        let away = PullError::Unavailable {
            reference: "r.test/a".into(),
            host: "r.test".into(),
            reason: "refused".into(),
        };
        let status = failure(&away);
        assert!(status.message().starts_with("RegistryUnavailable: r.test/a"), "{status}");
        assert_eq!(failure(&PullError::NotFound("a".into())).code(), Code::NotFound);
    }
}
