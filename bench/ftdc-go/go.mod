module ftdc-go

go 1.24

require github.com/mongodb/ftdc v0.0.0-20250225160627-a5c4e050d9d8

require (
	github.com/evergreen-ci/birch v0.0.0-20191213201306-f4dae6f450a2 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.mongodb.org/mongo-driver/v2 v2.0.0 // indirect
)
