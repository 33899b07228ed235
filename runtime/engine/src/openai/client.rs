//! Requests to a server over HTTP.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::http::{Response, Uri};

use super::reply::excerpt;
use crate::printable::{NAME_BYTES_MAX, printable_line};
use crate::{EngineError, Unavailable};
use flagperf_core::suggestion::nearest;
use flagperf_core::units::Seconds;

/// Most bytes of a line, and of a reply that is read as a whole.
const LINE_MAX: u64 = 1 << 20;
/// Time limit of the list of models.
const LIST_TIME_LIMIT: Duration = Duration::from_secs(10);

/// A server, and how it is asked.
#[derive(Debug)]
pub(super) struct Client {
    base_url: String,
    url: String,
    limit: Seconds,
    agent: Agent,
}

/// What a server says about itself.
pub(super) struct Connected {
    /// The model that is asked for.
    pub(super) model: String,
    pub(super) reported: Vec<String>,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
    owned_by: Option<String>,
}

impl Client {
    /// Returns a client for `path` below `base_url`. An answer may take as long as `limit`. Connects to nothing.
    ///
    /// # Errors
    /// When the address is not one of HTTP.
    pub(super) fn new(base_url: &str, path: &str, limit: Seconds) -> Result<Self, String> {
        let base_url = base_url.trim_end_matches('/');
        let url = format!("{base_url}/{}", path.trim_start_matches('/'));
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
        if !url.parse().is_ok_and(is_http) {
            return Err(format!(
                "`{base_url}` is not an address such as `http://127.0.0.1:8000/v1` or `http://[::1]:8000/v1` (HTTPS is not supported)"
            ));
        }
        // A connection of its own for each request: on one that was used before, a server could send an answer before the prompt. No
        // proxy and no redirection: the record names the server that was asked.
        let config =
            Agent::config_builder().http_status_as_error(false).max_idle_connections(0).max_redirects(0).proxy(None);
        let agent = config.timeout_global(Some(Duration::from_secs_f64(limit.0))).build().into();
        Ok(Client { base_url: base_url.to_owned(), url, limit, agent })
    }

    /// Describes why there is no answer.
    fn describe(&self, error: ureq::Error) -> String {
        match error {
            ureq::Error::Timeout(_) => format!("no complete answer within {} s (`time_limit_s`)", self.limit.0),
            other => other.to_string(),
        }
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The address to which prompts are sent.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Asks the server for its models, and chooses `model`, or the only one.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not have the model.
    pub(super) fn connect(&self, model: Option<&str>) -> Result<Connected, EngineError> {
        let url = format!("{}/models", self.base_url);
        let unavailable = |reason: String| Unavailable {
            reason: format!("the server `{url}`: {reason}"),
            remedy: "start the server, and set `base_url` to its address; `curl` with this address shows its models"
                .to_owned(),
        };
        let request = self.agent.get(&url).config().timeout_global(Some(LIST_TIME_LIMIT)).build();
        let response = request.call().map_err(|error| unavailable(error.to_string()))?;
        let server = response
            .headers()
            .get("server")
            .and_then(|value| value.to_str().ok())
            .map(|text| format!("server: {text}"));
        let body = read_whole(response).map_err(&unavailable)?;
        let list: ModelList = serde_json::from_slice(&body)
            .map_err(|error| unavailable(format!("not a list of models: {error}: `{}`", excerpt(&body))))?;
        let names: Vec<&str> = list.data.iter().map(|listed| listed.id.as_str()).collect();
        let known = || printable_line(&names.join(", "), NAME_BYTES_MAX);
        let chosen = match model {
            None => match list.data.as_slice() {
                [only] => only,
                [] => return Err(unavailable("it has no model".to_owned()).into()),
                _ => return Err(unavailable(format!("`model` must name one of its models: {}", known())).into()),
            },
            Some(model) => list.data.iter().find(|listed| listed.id == model).ok_or_else(|| {
                let near = nearest(model, names.iter().copied());
                let near =
                    near.map(|name| format!("; nearest: {}", printable_line(name, NAME_BYTES_MAX))).unwrap_or_default();
                unavailable(format!("it has no model `{model}` (known: {}{near})", known()))
            })?,
        };
        let owner = chosen.owned_by.as_ref().map(|owner| format!("owned_by: {owner}"));
        let reported =
            [server, owner].into_iter().flatten().map(|text| printable_line(&text, NAME_BYTES_MAX)).collect();
        Ok(Connected { model: chosen.id.clone(), reported })
    }

    /// Sends a request, and hands over each line of the reply when it has arrived, without its end, until `line` breaks.
    ///
    /// # Errors
    /// When the server refuses, the connection breaks, the time is over, or `line` returns an error.
    pub(super) fn stream(
        &self,
        body: &[u8],
        mut line: impl FnMut(&[u8]) -> Result<ControlFlow<()>, String>,
    ) -> Result<(), String> {
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let response = request.send(body).map_err(|error| self.describe(error))?;
        if !response.status().is_success() {
            return read_whole(response).map(drop);
        }
        let mut reader = BufReader::new(response.into_body().into_reader());
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes);
            let read = read.map_err(|error| self.describe(error.into()))?;
            if read == 0 {
                return Ok(());
            }
            if read as u64 == LINE_MAX {
                return Err(format!("a line of the reply is longer than {LINE_MAX} bytes"));
            }
            if line(bytes.trim_ascii_end())?.is_break() {
                return Ok(());
            }
        }
    }
}

/// Reads the body of a reply.
///
/// # Errors
/// When it is no success, with the beginning of the body; when it is too long or breaks off.
fn read_whole(response: Response<ureq::Body>) -> Result<Vec<u8>, String> {
    let status = response.status();
    let mut body = Vec::new();
    let read = response.into_body().into_reader().take(LINE_MAX).read_to_end(&mut body);
    match (status.is_success(), read) {
        (false, _) => Err(format!("it replied with status {status}: `{}`", excerpt(&body))),
        (true, Err(error)) => Err(error.to_string()),
        (true, Ok(read)) if read as u64 == LINE_MAX => Err(format!("the reply is longer than {LINE_MAX} bytes")),
        (true, Ok(_)) => Ok(body),
    }
}
