//! The form in which values stand in etcd.

/// The form of values for which there is a choice (`--storage-media-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Media {
    /// Protobuf.
    #[default]
    Protobuf,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Media {
    /// The one of a media type, if values can have it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// That of a value.
    pub(super) fn of(value: &[u8]) -> Self {
        match value {
            [b'{', ..] => Self::Json,
            [b'k', b'8', b's', 0, ..] => Self::Protobuf,
            _ => Self::Yaml,
        }
    }
}
