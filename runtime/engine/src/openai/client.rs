//! Requests to a server by OpenAI's interface.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;

use serde::Deserialize;

use crate::EngineError;
use crate::http_server::{HttpServer, excerpt, unavailable};
use crate::printable::{NAME_BYTES_MAX, printable_line};
use flagperf_core::suggestion::nearest;
use flagperf_core::units::Seconds;

/// Most bytes of a line.
const LINE_MAX: u64 = 1 << 20;

/// A server, and where prompts are sent.
#[derive(Debug)]
pub(super) struct Client {
    server: HttpServer,
    url: String,
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
        let server = HttpServer::new(base_url, limit)?;
        Ok(Client { url: server.url(path), server })
    }

    pub(super) fn base_url(&self) -> &str {
        self.server.base_url()
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
        let remedy = "start the server, and set `base_url` to its address; `curl` with this address shows its models";
        let unavailable = |reason: String| unavailable(&self.server.url("models"), &reason, remedy);
        let reply = self.server.get("models").map_err(&unavailable)?;
        let list: ModelList = serde_json::from_slice(&reply.body)
            .map_err(|error| unavailable(format!("not a list of models: {error}: `{}`", excerpt(&reply.body))))?;
        let names: Vec<&str> = list.data.iter().map(|listed| listed.id.as_str()).collect();
        let known = || printable_line(&names.join(", "), NAME_BYTES_MAX);
        let chosen = match model {
            None => match list.data.as_slice() {
                [only] => only,
                [] => return Err(unavailable("it has no model".to_owned())),
                _ => return Err(unavailable(format!("`model` must name one of its models: {}", known()))),
            },
            Some(model) => list.data.iter().find(|listed| listed.id == model).ok_or_else(|| {
                let near = nearest(model, names.iter().copied());
                let near =
                    near.map(|name| format!("; nearest: {}", printable_line(name, NAME_BYTES_MAX))).unwrap_or_default();
                unavailable(format!("it has no model `{model}` (known: {}{near})", known()))
            })?,
        };
        let owner = chosen.owned_by.as_ref().map(|owner| format!("owned_by: {owner}"));
        let server = reply.software.map(|software| format!("server: {software}"));
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
        let response = self.server.post(&self.url, &[("Content-Type", "application/json")], body)?;
        let mut reader = BufReader::new(response.into_body().into_reader());
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes);
            let read = read.map_err(|error| self.server.describe(error.into()))?;
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
