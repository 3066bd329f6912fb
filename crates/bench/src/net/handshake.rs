//! Opening a socket: TCP and the HTTP upgrade (RFC 6455, section 4), blocking, with a time limit.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Socket, Type};

/// How long the relay may take to accept and to answer the upgrade.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The example of RFC 6455, section 1.3: the answer to a known key is known as well.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A relay's `ws://` URL, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// As given.
    pub(crate) url: String,
    pub(super) address: SocketAddr,
    host: String,
    path: String,
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(url: &str) -> Result<Self> {
        ensure!(
            !url.starts_with("wss://"),
            "wss:// is not supported: the load would measure TLS; name the relay's own ws:// address behind its proxy"
        );
        let rest = url
            .strip_prefix("ws://")
            .context("the URL must start with ws://")?;
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, p)| !p.contains(']'));
        let with_port = if has_port {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let address = with_port
            .to_socket_addrs()
            .with_context(|| format!("can't resolve {host}"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        Ok(Self {
            url: url.to_owned(),
            address,
            host: host.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl Target {
    /// Opens one socket; gives it back non-blocking, with what came behind the handshake.
    ///
    /// # Errors
    /// Says at which step the relay refused or stayed silent.
    pub(super) fn connect(&self) -> Result<(mio::net::TcpStream, Vec<u8>)> {
        let mut stream = self
            .connect_tcp()
            .with_context(|| format!("can't connect to {}", self.url))?;
        let head = self
            .upgrade(&mut stream)
            .with_context(|| format!("{} did not accept a WebSocket", self.url))?;
        stream.set_nonblocking(true)?;
        Ok((mio::net::TcpStream::from_std(stream), head))
    }

    fn connect_tcp(&self) -> Result<std::net::TcpStream> {
        let mut source = None;
        // One loopback source address has about 28,000 ports; there are many such addresses.
        for next in 2..=u8::MAX {
            match self.connect_from(source) {
                Err(error)
                    if error.kind() == ErrorKind::AddrNotAvailable
                        && self.address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) =>
                {
                    source = Some(SocketAddr::from(([127, 0, 0, next], 0)));
                }
                result => return Ok(result?),
            }
        }
        bail!("no free port on any loopback address")
    }

    fn connect_from(&self, source: Option<SocketAddr>) -> std::io::Result<std::net::TcpStream> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, None)?;
        if let Some(source) = source {
            socket.bind(&source.into())?;
        }
        socket.connect_timeout(&self.address.into(), TIMEOUT)?;
        socket.set_tcp_nodelay(true)?;
        Ok(socket.into())
    }

    fn upgrade(&self, stream: &mut std::net::TcpStream) -> Result<Vec<u8>> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        let mut chunk = [0; 4096];
        let end = loop {
            if let Some(at) = memchr::memmem::find(&head, b"\r\n\r\n") {
                break at + 4;
            }
            ensure!(head.len() < 64 << 10, "the answer's head does not end");
            match stream.read(&mut chunk) {
                Ok(0) => bail!("the relay ended the connection"),
                Ok(read) => head.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    bail!("no answer within {} s", TIMEOUT.as_secs())
                }
                Err(error) => return Err(error.into()),
            }
        };
        let rest = head.split_off(end);
        let text = String::from_utf8_lossy(&head);
        let status = text.lines().next().unwrap_or_default();
        ensure!(
            status.split(' ').nth(1) == Some("101"),
            "the relay answered: {status}"
        );
        ensure!(
            text.contains(ACCEPT),
            "the answer lacks the right Sec-WebSocket-Accept"
        );
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_and_path_are_read() {
        let target: Target = "ws://127.0.0.1:3000/chat?x=1".parse().unwrap();
        assert_eq!(target.address, SocketAddr::from(([127, 0, 0, 1], 3000)));
        assert_eq!(
            (&*target.host, &*target.path),
            ("127.0.0.1:3000", "/chat?x=1")
        );
        let target: Target = "ws://127.0.0.1".parse().unwrap();
        assert_eq!((target.address.port(), &*target.path), (80, "/"));
        let target: Target = "ws://[::1]:7000".parse().unwrap();
        assert!(target.address.is_ipv6());
    }

    #[test]
    fn other_schemes_are_refused_with_a_reason() {
        let error = Target::from_str("wss://relay.example").unwrap_err();
        assert!(error.to_string().contains("TLS"), "{error}");
        assert!(Target::from_str("127.0.0.1:3000").is_err());
    }
}
