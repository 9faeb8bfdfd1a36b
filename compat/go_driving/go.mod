module compat/driving

go 1.24
