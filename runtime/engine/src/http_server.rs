//! Requests to a server over HTTP that somebody else started.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ureq::Agent;
use ureq::config::Config;
use ureq::http::{Response, Uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::options::EngineOptions;
use super::printable::{NAME_BYTES_MAX, printable_line};
use super::{EngineError, Unavailable};
use flagperf_core::description::{EngineOption, OptionKind};
use flagperf_core::units::Seconds;

/// Most bytes of a reply about the server.
const TEXT_MAX: u64 = 1 << 20;
/// Time limit of a request about the server.
const TEXT_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Bytes shown of a reply that cannot be read.
const EXCERPT: usize = 300;
/// The port of an address without one.
const HTTP_PORT: u16 = 80;

/// The option with the longest time of an answer, and its default in seconds.
pub(crate) const TIME_LIMIT_OPTION: EngineOption = EngineOption {
    name: "time_limit_s",
    kind: OptionKind::Number { min: Some(0.1), max: Some(86_400.0) },
    default: "600",
    about: "how long an answer may take, in seconds",
};
const TIME_LIMIT_DEFAULT: f64 = 600.0;

/// Returns how long an answer may take.
pub(crate) fn time_limit(options: &EngineOptions<'_>) -> Seconds {
    Seconds(options.number(TIME_LIMIT_OPTION.name).unwrap_or(TIME_LIMIT_DEFAULT))
}

/// The size of a buffer of a connection.
const BUFFER: usize = 16 << 10;

/// Finds the address of a host. One that is an address needs no thread of its own, as looking up a name with a time limit does: its time
/// would count as the server's.
#[derive(Debug, Default)]
struct AddressResolver(DefaultResolver);

impl Resolver for AddressResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let Ok(address) = host.parse::<IpAddr>() else { return self.0.resolve(uri, config, timeout) };
        let mut found = self.empty();
        found.push(SocketAddr::new(address, uri.port_u16().unwrap_or(HTTP_PORT)));
        Ok(found)
    }
}

/// A server at an address.
#[derive(Debug)]
pub(crate) struct HttpServer {
    base_url: String,
    limit: Seconds,
    agent: Agent,
}

/// What a server says about itself.
pub(crate) struct ServerReply {
    pub(crate) body: Vec<u8>,
    /// The name of its software.
    pub(crate) software: Option<String>,
}

impl HttpServer {
    /// Returns the server below `base_url`. An answer may take as long as `limit`. Connects to nothing.
    ///
    /// # Errors
    /// When the address is not one of HTTP.
    pub(crate) fn new(base_url: &str, limit: Seconds) -> Result<Self, String> {
        let base_url = base_url.trim_end_matches('/');
        // The record would contain a password.
        if base_url.contains(['@', '?', '#']) {
            return Err("an address with a user, a password, a query or a fragment is not supported".to_owned());
        }
        let is_http = |parsed: Uri| {
            let has_host = parsed.host().is_some_and(|host| !host.is_empty());
            let named = parsed.authority().map_or("", |authority| authority.as_str());
            let has_port = parsed.host() == Some(named) || parsed.port_u16().is_some_and(|port| port > 0);
            parsed.scheme_str() == Some("http") && has_host && has_port
        };
        if !format!("{base_url}/").parse().is_ok_and(is_http) {
            return Err(format!(
                "`{base_url}` is not an address such as `http://127.0.0.1:8000/v1` or `http://[::1]:8000/v1` (HTTPS is not supported)"
            ));
        }
        // A connection of its own for each request: on one that was used before, a server could send an answer before the prompt. No
        // proxy and no redirection: the record names the server that was asked.
        let config =
            Agent::config_builder().http_status_as_error(false).max_idle_connections(0).max_redirects(0).proxy(None);
        // Each connection has buffers of its own, which take time to fill with zeros.
        let config = config.input_buffer_size(BUFFER).output_buffer_size(BUFFER);
        let config = config.timeout_global(Some(Duration::from_secs_f64(limit.0))).build();
        let agent = Agent::with_parts(config, DefaultConnector::default(), AddressResolver::default());
        Ok(HttpServer { base_url: base_url.to_owned(), limit, agent })
    }

    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Returns the address of a path below the base.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base_url, path.trim_start_matches('/'))
    }

    /// Asks for something about the server.
    ///
    /// # Errors
    /// When it cannot be reached, or does not reply with success.
    pub(crate) fn get(&self, path: &str) -> Result<ServerReply, String> {
        let request = self.agent.get(self.url(path)).config().timeout_global(Some(TEXT_TIME_LIMIT)).build();
        let response = request.call().map_err(|error| error.to_string())?;
        let software = response.headers().get("server").and_then(|value| value.to_str().ok());
        let software = software.map(|text| printable_line(text, NAME_BYTES_MAX));
        Ok(ServerReply { software, body: read_whole(response, TEXT_MAX)? })
    }

    /// Sends a request, and returns the beginning of its reply.
    ///
    /// # Errors
    /// When the server cannot be reached, does not reply with success, or the time is over.
    pub(crate) fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response<ureq::Body>, String> {
        let request = headers.iter().fold(self.agent.post(url), |request, (name, value)| request.header(*name, *value));
        let response = request.send(body).map_err(|error| self.describe(error))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(read_whole(response, TEXT_MAX).expect_err("the reply is no success")),
        }
    }

    /// Describes why there is no answer.
    pub(crate) fn describe(&self, error: ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => format!("no complete answer within {} s (`time_limit_s`)", self.limit.0),
            other => other.to_string(),
        }
    }
}

/// Returns the error for a server that cannot be used.
pub(crate) fn unavailable(url: &str, reason: &str, remedy: &str) -> EngineError {
    Unavailable { reason: format!("the server `{url}`: {reason}"), remedy: remedy.to_owned() }.into()
}

/// Reads the body of a reply.
///
/// # Errors
/// When it is no success, with the beginning of the body; when it has `limit` bytes or more, or breaks off.
pub(crate) fn read_whole(response: Response<ureq::Body>, limit: u64) -> Result<Vec<u8>, String> {
    let status = response.status();
    let mut body = Vec::new();
    let read = response.into_body().into_reader().take(limit).read_to_end(&mut body);
    match (status.is_success(), read) {
        (false, _) => Err(format!("it replied with status {status}: `{}`", excerpt(&body))),
        (true, Err(error)) => match ureq::Error::from(error) {
            ureq::Error::Timeout(_) => Err("no complete answer within the time limit (`time_limit_s`)".to_owned()),
            error => Err(error.to_string()),
        },
        (true, Ok(read)) if read as u64 == limit => Err(format!("the reply is longer than {limit} bytes")),
        (true, Ok(_)) => Ok(body),
    }
}

/// Returns the beginning of what a server sent, in one line.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    printable_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * EXCERPT)]), EXCERPT)
}
