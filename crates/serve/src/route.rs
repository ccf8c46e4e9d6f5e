//! Routes: the endpoint of each path, and its requirements.

use http::Method;

use crate::{Refusal, path::Path};

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`.
    Chat,
    /// `POST /v1/completions`.
    Completions,
    /// `POST /v1/infill`.
    Infill,
    /// `POST /infill`, as llama.cpp's server has it.
    PlainInfill,
    /// `POST /v1/fim/completions`, as Mistral and Mercury have it.
    Fim,
    /// `POST /v1/score`.
    Score,
    /// `POST /v1/responses`, which is not served, and says what is.
    Responses,
    /// `GET /v1/models`.
    Models,
    /// `GET /v1/models/{id}`.
    Model,
    /// `POST /tokenize`.
    Tokenize,
    /// `POST /detokenize`.
    Detokenize,
    /// `GET /tokenizer_info`.
    TokenizerInfo,
    /// `GET /health` and `/ready`.
    Health,
    /// `GET /live`.
    Live,
    /// `GET /version`.
    Version,
    /// `GET /info`.
    Info,
    /// `GET /metrics`.
    Metrics,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /` and its files.
    Page,
}

/// A line of the table: path, method, endpoint, its name in logs.
type Line = (&'static str, Method, Endpoint, &'static str);

/// Paths without parameters.
pub const ROUTES: [Line; 23] = [
    ("/v1/chat/completions", Method::POST, Endpoint::Chat, "chat"),
    ("/v1/completions", Method::POST, Endpoint::Completions, "completions"),
    ("/v1/infill", Method::POST, Endpoint::Infill, "infill"),
    ("/infill", Method::POST, Endpoint::PlainInfill, "plain_infill"),
    ("/v1/fim/completions", Method::POST, Endpoint::Fim, "fim"),
    ("/v1/score", Method::POST, Endpoint::Score, "score"),
    ("/v1/responses", Method::POST, Endpoint::Responses, "responses"),
    ("/v1/models", Method::GET, Endpoint::Models, "models"),
    ("/tokenize", Method::POST, Endpoint::Tokenize, "tokenize"),
    ("/detokenize", Method::POST, Endpoint::Detokenize, "detokenize"),
    ("/tokenizer_info", Method::GET, Endpoint::TokenizerInfo, "tokenizer_info"),
    ("/health", Method::GET, Endpoint::Health, "health"),
    ("/v1/health", Method::GET, Endpoint::Health, "health"),
    ("/ready", Method::GET, Endpoint::Health, "ready"),
    ("/ping", Method::GET, Endpoint::Health, "ping"),
    ("/live", Method::GET, Endpoint::Live, "live"),
    ("/version", Method::GET, Endpoint::Version, "version"),
    ("/info", Method::GET, Endpoint::Info, "info"),
    ("/metrics", Method::GET, Endpoint::Metrics, "metrics"),
    ("/openapi.json", Method::GET, Endpoint::OpenApi, "openapi"),
    ("/", Method::GET, Endpoint::Page, "page"),
    ("/page.css", Method::GET, Endpoint::Page, "page"),
    ("/page.js", Method::GET, Endpoint::Page, "page"),
];

/// Finds the endpoint of a request; the page's files are there only if the page is.
///
/// # Errors
/// If there is no such path, or it has another method.
pub fn find(method: &Method, path: &Path, page: bool) -> Result<Endpoint, Refusal> {
    let whole = path.whole();
    let found = ROUTES
        .iter()
        .find(|(known, ..)| whole.as_deref() == Some(*known))
        .map(|(_, method, endpoint, _)| (method, *endpoint));
    let inside = |folder: &str| path.behind(folder).is_some();
    let found = found.or_else(|| {
        inside("/v1/models/")
            .then_some((&Method::GET, Endpoint::Model))
            .or(inside("/page/").then_some((&Method::GET, Endpoint::Page)))
    });
    match found {
        Some((_, Endpoint::Page)) if !page => {
            Err(Refusal::missing("this server has no page: it was started with --no-ui"))
        }
        // A head is a get whose body is left out, which is the connection's to do.
        Some((known, endpoint)) if known == method || known == Method::GET && method == Method::HEAD => Ok(endpoint),
        Some((known, _)) => {
            let allow = if known == Method::GET { "GET, HEAD" } else { "POST" };
            Err(Refusal::method(allow, format!("{} takes {known}, not {}", path.shown(), told_method(method))))
        }
        None => Err(Refusal::missing(format!(
            "there is no {}: expected /v1/chat/completions, /v1/completions, or another path of /openapi.json",
            path.shown()
        ))),
    }
}

/// Returns whether a path is asked by balancers, managers and scrapers, which know an address of this machine and no name:
/// it is there whatever host a request names.
#[cfg(feature = "http")]
pub fn is_probe(path: &str) -> bool {
    let whole = Path::read(path).ok().and_then(|path| path.whole());
    let found = ROUTES.iter().find(|(known, ..)| whole.as_deref() == Some(*known));
    found.is_some_and(|(_, _, endpoint, _)| matches!(endpoint, Endpoint::Health | Endpoint::Live | Endpoint::Metrics))
}

/// A method's name, which may be any word.
fn told_method(method: &Method) -> &str {
    method.as_str().get(..20).unwrap_or(method.as_str())
}

impl Endpoint {
    /// Returns its name in logs.
    pub fn name(self) -> &'static str {
        let named = ROUTES.iter().find(|(_, _, endpoint, _)| *endpoint == self);
        named.map_or("model", |(.., name)| name)
    }

    /// Returns whether it is there for everybody, with or without a key: it says nothing of anybody's requests.
    pub fn is_open(self) -> bool {
        matches!(
            self,
            Self::Health | Self::Live | Self::Version | Self::Info | Self::Metrics | Self::OpenApi | Self::Page
        )
    }

    /// Returns whether it works for a request, and so needs a place.
    pub fn works(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Completions
                | Self::Infill
                | Self::PlainInfill
                | Self::Fim
                | Self::Score
                | Self::Tokenize
                | Self::Detokenize
        )
    }

    /// Returns whether it reads a body: those that work, and no other.
    pub fn takes_body(self) -> bool {
        // Not served, whatever its body is, which is passed over.
        self.works() || self == Self::Responses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_endpoints() {
        let find = |method: &Method, path: &str, page| find(method, &Path::read(path).unwrap(), page);
        let get = |path: &str| find(&Method::GET, path, true);
        assert_eq!(get("/v1/models"), Ok(Endpoint::Models));
        assert_eq!(get("/v1/models/org/name"), Ok(Endpoint::Model));
        assert_eq!(get("/page/page.js"), Ok(Endpoint::Page));
        assert_eq!(find(&Method::HEAD, "/health", true), Ok(Endpoint::Health));
        assert_eq!(find(&Method::POST, "/v1/score", true), Ok(Endpoint::Score));
    }

    #[test]
    fn others_are_refused_in_the_envelope() {
        let status =
            |method: &Method, path: &str| find(method, &Path::read(path).unwrap(), false).unwrap_err().status.as_u16();
        assert_eq!(status(&Method::GET, "/v1/chat/completions"), 405);
        assert_eq!(status(&Method::DELETE, "/v1/models/x"), 405);
        assert_eq!(status(&Method::GET, "/v2"), 404);
        assert_eq!(status(&Method::GET, "/v1/models/"), 404);
        assert_eq!(status(&Method::GET, "/"), 404);
    }
}
