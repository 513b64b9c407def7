"""Text from servers, models and users: made safe to print, with secrets taken out."""
