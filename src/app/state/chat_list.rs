//! Chat list: all chats, the current one, the search, and the queue of the chat database.

use crate::app::state::chat::{Chat, ChatId};
use crate::app::state::chat_queue::ChatPersistence;

/// All chats of the window.
#[derive(Debug)]
pub struct ChatList {
    /// newest first; never empty
    pub list: Vec<Chat>,
    /// the current chat
    pub current: ChatId,
    /// text in the search field
    pub search: String,
    /// queue and results of the chat database
    pub persistence: ChatPersistence,
    /// the last id of a chat, message or document
    pub(in crate::app::state) next_id: u64,
}

impl ChatList {
    /// One empty chat.
    pub fn new() -> ChatList {
        let chat = Chat { id: 1, ..Chat::default() };
        let (current, list) = (chat.id, vec![chat]);
        ChatList { list, current, search: String::new(), persistence: ChatPersistence::default(), next_id: 1 }
    }
}

impl Default for ChatList {
    fn default() -> Self {
        ChatList::new()
    }
}
