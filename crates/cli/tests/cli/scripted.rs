//! A server of the OpenAI kind whose every byte a test decides.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// `POST /v1/chat/completions`.
    pub what: String,
    /// The rest of its head.
    pub head: String,
    /// Body of the request; null if it has none.
    pub body: Value,
    /// Number of requests before it.
    pub number: usize,
    /// Index of its connection.
    pub connection: usize,
}

/// Bytes to send back.
pub struct Reply {
    /// Sent one by one, at least a moment apart.
    pub pieces: Vec<Vec<u8>>,
    /// Pause between two pieces.
    pub pause: Duration,
    /// Records whether the connection is closed behind them.
    pub close: bool,
}

impl Reply {
    /// Creates a reply of these bytes in one piece, with the connection kept.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self { pieces: vec![bytes.into()], pause: Duration::ZERO, close: false }
    }

    /// A whole body of JSON with a status and more lines of the head, each with its end.
    pub fn json(status: &str, head: &str, body: &str) -> Self {
        let length = body.len();
        Self::bytes(format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{head}Content-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// A stream of these messages in chunks, with `[DONE]` behind them, and more lines of the head.
    pub fn stream(head: &str, messages: &[String]) -> Self {
        let all: String = messages.iter().map(String::as_str).chain(["[DONE]"]).map(message).collect();
        Self::chunked(head, &all)
    }

    /// A stream of these bytes in one chunk.
    pub fn chunked(head: &str, text: &str) -> Self {
        let length = text.len();
        Self::bytes(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{head}Transfer-Encoding: chunked\r\n\r\n\
             {length:x}\r\n{text}\r\n0\r\n\r\n"
        ))
    }

    /// Cuts the bytes into pieces of so many each.
    pub fn torn(self, size: usize) -> Self {
        let all = self.pieces.concat();
        Self { pieces: all.chunks(size).map(<[u8]>::to_vec).collect(), ..self }
    }

    /// Pauses between pieces.
    pub fn slowly(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Closes the connection behind the bytes.
    pub fn closed(self) -> Self {
        Self { close: true, ..self }
    }
}

fn message(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// A chunk of a chat with this text.
pub fn chat(text: &str) -> String {
    serde_json::json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
        .to_string()
}

/// The last chunks of a chat: why it ended, and so many tokens of prompt and answer.
pub fn end(prompt: usize, answer: usize) -> [String; 2] {
    let finish = serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = serde_json::json!({"prompt_tokens": prompt, "completion_tokens": answer});
    [finish.to_string(), serde_json::json!({"choices": [], "usage": usage}).to_string()]
}

/// A server that runs until the test's process ends.
pub struct Scripted {
    /// Returns the server's URL.
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Starts one whose completions this decides; it lists the model `scripted`.
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                // A client that goes away in the middle is what some tests are about.
                thread::spawn(move || converse(&stream.unwrap(), connection, &log, &*answer));
            }
        });
        Self { url, asked }
    }

    /// Completions that were asked for so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.what.starts_with("POST")).cloned().collect()
    }

    /// All requests so far.
    pub fn asked_at_all(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn converse(
    stream: &TcpStream,
    connection: usize,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    while let Some(mut asked) = read(&mut input)? {
        asked.connection = connection;
        {
            let mut log = log.lock().unwrap();
            asked.number = log.iter().filter(|other| other.what.starts_with("POST")).count();
            log.push(asked.clone());
        }
        let reply = if asked.what.starts_with("GET /v1/models ") {
            Reply::json("200 OK", "", r#"{"object":"list","data":[{"id":"scripted"}]}"#)
        } else {
            answer(&asked)
        };
        let mut output = stream;
        for piece in &reply.pieces {
            output.write_all(piece)?;
            thread::sleep(reply.pause);
        }
        if reply.close {
            return stream.shutdown(std::net::Shutdown::Both);
        }
    }
    Ok(())
}

/// A request; `None` if the connection has ended.
fn read(input: &mut impl BufRead) -> std::io::Result<Option<Asked>> {
    let mut asked = Asked::default();
    if input.read_line(&mut asked.what)? == 0 {
        return Ok(None);
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        asked.head.push_str(&line);
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    asked.body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(asked))
}
