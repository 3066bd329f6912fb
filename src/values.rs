//! How settings are written that TOML and the environment have no type for, and how they are shown
//! without their secrets.

/// A duration such as `"5s"`.
pub(crate) mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer, de::Error};

    /// Longer ones overflow where they are added to a time.
    const LONGEST: Duration = Duration::from_secs(1000 * 366 * 24 * 60 * 60);

    pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&humantime::format_duration(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse(&super::text::deserialize(from)?).map_err(D::Error::custom)
    }

    pub(crate) fn parse(text: &str) -> Result<Duration, String> {
        let parsed = humantime::parse_duration(text).map_err(|error| {
            format!("`{text}` is no duration such as \"5s\" or \"15m\": {error}")
        })?;
        if parsed > LONGEST {
            return Err(format!("`{text}` is more than a thousand years"));
        }
        Ok(parsed)
    }
}

/// A duration, or the empty string for none.
pub(crate) mod optional_duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::duration::serialize(value, out),
            None => out.serialize_str(""),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = super::text::deserialize(from)?;
        if text.is_empty() {
            return Ok(None);
        }
        super::duration::parse(&text)
            .map(Some)
            .map_err(D::Error::custom)
    }
}

/// A text that the environment may have turned into a number or a truth value.
pub(crate) mod text {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &str, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        struct Scalar;
        impl de::Visitor<'_> for Scalar {
            type Value = String;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }
            fn visit_u64<E>(self, number: u64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_i64<E>(self, number: i64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_bool<E>(self, value: bool) -> Result<String, E> {
                Ok(value.to_string())
            }
        }
        from.deserialize_any(Scalar)
    }
}

/// A list of address ranges. A plain address is a range of one.
pub(crate) mod networks {
    use std::net::IpAddr;

    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &[IpNet], out: S) -> Result<S::Ok, S::Error> {
        value.serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        let parsed = texts.iter().map(|text| parse(text));
        parsed.collect::<Result<_, _>>().map_err(D::Error::custom)
    }

    fn parse(text: &str) -> Result<IpNet, String> {
        let address = text.parse::<IpAddr>().map(|ip| ip.to_canonical().into());
        let range = address.or_else(|_| text.parse::<IpNet>());
        range.map_err(|_| {
            format!("`{text}` is neither an address nor a range such as \"10.0.0.0/8\"")
        })
    }
}

/// Replaces the passwords of a URL by `***`: the one before the host, and a `password` parameter.
pub fn mask_password(url: &str) -> String {
    let url = mask_parameter(url);
    let masked = || {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        let (user_and_password, host) = authority.rsplit_once('@')?;
        let (user, _) = user_and_password.split_once(':')?;
        Some(format!(
            "{scheme}://{user}:***@{host}{}",
            &rest[authority.len()..]
        ))
    };
    masked().unwrap_or_else(|| url.clone())
}

fn mask_parameter(url: &str) -> String {
    let Some((base, query)) = url.split_once('?').filter(|_| !url.starts_with("sqlite:")) else {
        return url.to_owned();
    };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key @ ("password" | "sslpassword"), _)) => format!("{key}=***"),
        _ => pair.to_owned(),
    });
    format!("{base}?{}", pairs.collect::<Vec<_>>().join("&"))
}
