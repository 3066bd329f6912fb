//! The parts of a URL that decide whether two name the same place. No full URL grammar: what is
//! compared is what a relay's operator and its clients wrote.

/// A `ws`, `wss`, `http` or `https` URL. Two are equal where nothing differs but the case of
/// scheme and host, and whether the scheme's default port is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url<'a> {
    /// In lower case.
    pub scheme: &'static str,
    /// What stands before an `@`.
    pub user: Option<&'a str>,
    /// In lower case, an IPv6 address in its brackets.
    pub host: String,
    /// `None` for the scheme's default.
    pub port: Option<u16>,
    /// Path, query and fragment, as they stand; empty where there is none.
    pub rest: &'a str,
}

impl<'a> Url<'a> {
    /// Reads an absolute URL. `None` where it is none, or has another scheme.
    pub fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let schemes = [("ws", 80), ("wss", 443), ("http", 80), ("https", 443)];
        let mut known = schemes.into_iter();
        let (scheme, default_port) = known.find(|(name, _)| name.eq_ignore_ascii_case(scheme))?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, host_port) = match authority.rsplit_once('@') {
            Some((user, host_port)) => (Some(user), host_port),
            None => (None, authority),
        };
        // The last colon starts the port, unless it stands inside an IPv6 address's brackets.
        let (host, port) = match host_port.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port_number(port)?)),
            _ => (host_port, None),
        };
        (!host.is_empty()).then(|| Self {
            scheme,
            user,
            host: host.to_ascii_lowercase(),
            port: port.filter(|port| *port != default_port),
            rest,
        })
    }
}

fn port_number(digits: &str) -> Option<u16> {
    // `u16::from_str` would take a sign.
    digits.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_of_scheme_and_host_and_default_ports_do_not_count() {
        for (one, other) in [
            ("HTTP://Relay.Example/a", "http://relay.example:80/a"),
            ("https://h:443", "https://h"),
            ("ws://[::1]:80/x?y", "WS://[::1]/x?y"),
        ] {
            assert_eq!(Url::parse(one), Url::parse(other));
            assert!(Url::parse(one).is_some(), "{one}");
        }
    }

    #[test]
    fn everything_else_counts() {
        let url = Url::parse("http://h/a");
        for other in [
            "https://h/a",
            "ws://h/a",
            "http://h./a",
            "http://h:81/a",
            "http://u@h/a",
            "http://h/A",
            "http://h/a/",
            "http://h/a?",
            "http://h/a#",
            "http://h",
        ] {
            assert!(Url::parse(other).is_some(), "{other}");
            assert_ne!(Url::parse(other), url, "{other}");
        }
    }

    #[test]
    fn what_is_no_url_of_ours_is_none() {
        for text in [
            "",
            "h/a",
            "http:/h",
            "http://",
            "http:///a",
            "ftp://h/",
            "http://h:x/",
            "http://h:+1/",
            "http://h:/",
            "http://h:65536/",
            "http://@/a",
            " http://h",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }
}
